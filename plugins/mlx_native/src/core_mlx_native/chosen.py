"""Settings chosen automatically at load, with reasons; an option of the same name overrides.

A pass runs as many prompt tokens as keep the device busy, if they fit in memory.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import mlx.core as mx

from core import validate
from core.errors import InvalidOptionError
from core.kit.support import ASKED, Chosen, asked_integer
from core.options import LoadConfig
from core.types import Choice
from core_runtime.checkpoint.config import ModelConfig
from core_runtime.choices import parallel_slots, prefix_cache
from core_runtime.cuts import Cuts

_CPU_TOKENS, _GPU_TOKENS = 1024, 16384
_LANE_TOKENS = 512  # with fewer, each core would read the weights too often
_FEWEST_TOKENS = 64
_READ_WEIGHTS = 32  # tokens
_ROUND_TOKENS = 256  # on a CPU: half or twice as many take 4 to 15 % longer
_START_KERNELS = 4096 * 27_000_000  # tokens, each times the weights of a layer
_HIDDEN = 4  # of a queued micro-batch, a quarter of the start is waited for
_LAYERS_IN_FLIGHT = 17  # on CUDA: ten graphs of 100 operations, at some 60 operations a layer
CUDNN_HEAD = 128  # largest head size that cuDNN attends with
_SHARE = 4  # a pass may use a quarter of the free memory
_LOGIT_COPIES = 3  # per row: raw, penalised, and the distribution to draw from
_EMULATES_BFLOAT16 = re.compile(r"Apple M[12]\b")  # from M3 on the GPU has instructions for it
DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}


@dataclass(frozen=True, slots=True)
class FastPaths:
    """The optimisations over the plain masked forward pass, with the same results.

    ``equal_rows``: duplicate prompts of a call are computed once. ``prefix``: prefixes shared by
    prompts are computed once. ``sorted``: prompts of similar length run together. ``last_layer``:
    the last layer runs only at the positions that are read. ``label_rows``: with ``labels_only``,
    the LM head runs only for the labels' tokens. ``label_search``: of labels with several tokens,
    only those that can still win are read. ``host_math``: on a CPU, numpy computes activations and
    softmax. ``few_tokens``: on a CPU, decoding steps and short passes run in numpy. ``lanes``: on a
    CPU, each core runs a separate part of a micro-batch. ``overlap``: on a GPU, a micro-batch is
    queued while the previous one runs. ``cuts``: on a GPU, micro-batches are cut where they cost
    least, and have few shapes if the device plans each. ``prefix_cache``: prefixes of earlier
    calls' prompts are cached.
    """

    equal_rows: bool = True
    prefix: bool = True
    sorted: bool = True
    last_layer: bool = True
    label_rows: bool = True
    label_search: bool = True
    host_math: bool = True
    few_tokens: bool = True
    lanes: bool = True
    overlap: bool = True
    cuts: bool = True
    prefix_cache: bool = True

    @classmethod
    def of(cls, config: LoadConfig) -> Self:
        """Enable every fast path except those in the option ``without``."""
        names = config.options.get("without", ())
        without = validate.texts("without", (names,) if isinstance(names, str) else names)
        known = tuple(field.name for field in fields(cls))
        for name in without:
            if name not in known:
                raise InvalidOptionError("without", name, f"one of {', '.join(known)}")
        return cls(**dict.fromkeys(without, False))


@dataclass(frozen=True, slots=True)
class Footprint:
    """The memory of a pass in bytes: per token, and per row for its logits in float32.

    ``layers``: layers whose hidden states are in memory at the same time.
    """

    token: int
    row: int
    layers: int = 1

    @classmethod
    def of(cls, model: ModelConfig, dtype: mx.Dtype, layers: int = 1) -> Self:
        """Count hidden states and the MLP's of some layers, and keys and values of all."""
        hidden = layers * (8 * model.hidden_size + 3 * model.intermediate_size)
        cached = 2 * model.num_layers * model.num_kv_heads * model.head_dim
        return cls((hidden + cached) * dtype.size, _LOGIT_COPIES * 4 * model.vocab_size, layers)

    @property
    def row_tokens(self) -> int:
        """The number of tokens that take as much memory as a row's logits."""
        return self.row // self.token


def layers_in_flight(config: ModelConfig, on_gpu: bool) -> int:
    """Return the number of layers whose hidden states are in device memory at once.

    MLX's CUDA backend keeps the inputs of a kernel graph until that graph is done, and queues up to
    ten graphs (``MAX_ACTIVE_TASKS``; with its limits for an H100, the largest). Estimated, not
    measured. On Metal a large pass fills a command buffer with an operation or two.
    """
    if not on_gpu or platform.system() == "Darwin":
        return 1
    return min(config.num_layers, _LAYERS_IN_FLIGHT)


def pass_tokens(config: ModelConfig, on_gpu: bool) -> int:
    """Return the tokens that take as long as an almost empty pass; a prefix must save as many.

    In that time a CPU reads the weights, and a CUDA GPU starts kernels, which takes the same time
    for every layer: estimated, not measured, as that of 4,096 tokens in a layer of Gemma-3-1B.
    """
    if not on_gpu or platform.system() == "Darwin":
        return _READ_WEIGHTS

    heads = 2 * (config.num_heads + config.num_kv_heads) * config.head_dim
    weights = config.hidden_size * (heads + 3 * config.intermediate_size)  # of one layer
    return max(_READ_WEIGHTS, _START_KERNELS // weights)


def cuts(config: ModelConfig, on_gpu: bool, fast: FastPaths) -> Cuts | None:
    """Return the costs for cutting micro-batches; None to fill each one, as on a CPU.

    If the device plans each shape, a pass costs all of `pass_tokens`, because a plan takes longer.
    """
    if not (on_gpu and fast.sorted and fast.cuts):
        return None
    cost, planned = pass_tokens(config, on_gpu), _plans_shapes(config)
    return Cuts(cost if planned else max(_READ_WEIGHTS, cost // _HIDDEN), planned)


def _plans_shapes(config: ModelConfig) -> bool:
    """Return True if a GPU caches a plan per shape: CUDA, with head sizes that cuDNN supports."""
    return platform.system() != "Darwin" and config.head_dim <= CUDNN_HEAD


def token_budget(
    options: LoadConfig, footprint: Footprint, on_gpu: bool, free: int | None, lanes: int = 1
) -> Chosen[int]:
    """Choose the maximum number of prompt tokens per pass.

    ``free`` is the device's free memory in bytes, None if unknown. On a CPU, ``lanes`` share the
    tokens.

    Raises `InvalidOptionError` for an option's wrong value.
    """
    requested = asked_integer(options, "token_budget", 1)
    if requested is not None:
        return requested

    wanted = _GPU_TOKENS if on_gpu else max(_CPU_TOKENS, _LANE_TOKENS * lanes)
    if free is not None:
        fits = max(_FEWEST_TOKENS, free // _SHARE // footprint.token)
        if fits < wanted:
            reason = f"a quarter of the {free / 1e9:.1f} GB free"
            if footprint.layers > 1:
                share = f"{footprint.token / 1e6:.2f} MB per token"
                reason += f", at an estimated {share} with {footprint.layers} layers in flight"
            return Chosen("token_budget", fits, reason)

    if on_gpu:
        return Chosen("token_budget", wanted, "enough tokens per pass to keep a GPU busy")
    return Chosen("token_budget", wanted, "larger passes are not faster on a CPU")


def round_tokens(budget: int, on_gpu: bool) -> int:
    """Return the number of label tokens that a search runs per round.

    More tokens mean fewer rounds but more unnecessary nodes. A GPU waits for its host between
    rounds, so there it is the complete budget of a pass: estimated, not measured.
    """
    return budget if on_gpu else min(budget, _ROUND_TOKENS)


@dataclass(frozen=True, slots=True)
class Choices:
    """The settings chosen at one load; ``dtype`` is a key of `DTYPES`."""

    dtype: Chosen[str]
    dequantize: Chosen[bool]
    parallel_slots: Chosen[int]
    prefill_chunk: Chosen[int]
    length_step: Chosen[int]

    @classmethod
    def of(cls, config: LoadConfig, on_gpu: bool, model: ModelConfig, chip: str = "") -> Self:
        """Choose everything; ``chip`` is the name of an Apple processor.

        Raises `InvalidOptionError` for an option's wrong value.
        """
        return cls(
            _dtype(config, on_gpu, model, chip),
            _dequantize(config, on_gpu),
            parallel_slots(config, on_gpu),
            _prefill_chunk(config, on_gpu),
            _length_step(config, on_gpu, model),
        )

    def shown(
        self, budget: Chosen[int], prefixes: Chosen[int], quantised: bool
    ) -> Sequence[Choice]:
        """Return the choices to display.

        ``budget`` and ``prefixes`` were chosen with the model in memory.
        """
        shown: list[Chosen[object]] = [self.dtype]
        if quantised:
            shown.append(self.dequantize)
        shown += [budget, self.length_step, self.parallel_slots, self.prefill_chunk, prefixes]
        return [chosen.choice for chosen in shown]


def kept_prefixes(config: LoadConfig, fast: FastPaths, free: int | None) -> Chosen[int]:
    """Choose the size of the prefix cache in bytes.

    ``free`` is the device's free memory in bytes, None if unknown. Raises `InvalidOptionError` for
    an option's wrong value.
    """
    chosen = prefix_cache(config, free)
    return chosen if fast.prefix_cache else Chosen(chosen.name, 0, "disabled by 'without'")


def _dtype(config: LoadConfig, on_gpu: bool, model: ModelConfig, chip: str) -> Chosen[str]:
    requested = config.options.get("dtype")
    if requested is not None:
        return Chosen("dtype", validate.one_of("dtype", requested, tuple(DTYPES)), ASKED)
    if on_gpu and _EMULATES_BFLOAT16.match(chip):
        if model.family.runs_float16:
            return Chosen("dtype", "float16", f"{chip} computes bfloat16 in software")
        reason = f"{model.model_type} overflows float16, although {chip} would be faster with it"
        return Chosen("dtype", "bfloat16", reason)
    if on_gpu:
        return Chosen("dtype", "bfloat16", "half the memory of float32, same range")
    return Chosen("dtype", "float32", "MLX's low-precision products on CPU are far slower")


def _dequantize(config: LoadConfig, on_gpu: bool) -> Chosen[bool]:
    requested = config.options.get("dequantize")
    if requested is not None:
        return Chosen("dequantize", validate.flag("dequantize", requested), ASKED)
    if on_gpu:
        return Chosen("dequantize", False, "packed weights take less memory and bandwidth")
    return Chosen("dequantize", True, "MLX's products of packed weights are slow on a CPU")


def _prefill_chunk(config: LoadConfig, on_gpu: bool) -> Chosen[int]:
    requested = asked_integer(config, "prefill_chunk", 1)
    if requested is not None:
        return requested
    chunk = 1024 if on_gpu else 256
    return Chosen("prefill_chunk", chunk, "a long prompt does not delay the rows that decode")


def _length_step(config: LoadConfig, on_gpu: bool, model: ModelConfig) -> Chosen[int]:
    requested = asked_integer(config, "length_step", 1)
    if requested is not None:
        return requested
    if on_gpu and _plans_shapes(model):  # a plan takes about 20 ms, and MLX caches few of them
        return Chosen("length_step", 16, f"cuDNN plans each shape (head size {model.head_dim})")
    if on_gpu:
        return Chosen("length_step", 4, "shapes are not planned, and padding costs time")
    return Chosen("length_step", 1, "a CPU caches nothing per shape, and padding costs time")
