"""The choices made for the user at load, with their reasons; an option of the same name wins.

As many tokens of prompts run together as keep the device busy, if the memory holds them.
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
from core.options import LoadConfig
from core.support import ASKED, Chosen, asked_integer
from core.types import Choice
from core_mlx_native.checkpoint.config import ModelConfig
from core_runtime.choices import parallel_slots, prefix_cache
from core_runtime.cuts import Cuts

_CPU_TOKENS, _GPU_TOKENS = 1024, 16384
_LANE_TOKENS = 512  # with fewer, each core would read the weights too often
_FEWEST_TOKENS = 64
_READ_WEIGHTS = 32  # tokens
_ROUND_TOKENS = 256  # on a CPU: half or twice as many take 4 to 15 % longer
_START_KERNELS = 4096 * 27_000_000  # tokens, each times the weights of a layer
_HIDDEN = 4  # of a micro-batch that is queued behind another, a quarter of the start is waited for
_LAYERS_IN_FLIGHT = 17  # on CUDA: ten graphs of 100 operations, at some 60 operations a layer
CUDNN_HEAD = 128  # cuDNN attends with heads of this size at most
_SHARE = 4  # a pass may take one part in four of the memory that is free
_LOGIT_COPIES = 3  # of a row: raw, penalised, and what is drawn from
_EMULATES_BFLOAT16 = re.compile(r"Apple M[12]\b")  # from M3 on the GPU has instructions for it
DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}


@dataclass(frozen=True, slots=True)
class FastPaths:
    """The ways to be faster than the plain masked forward pass, with the same results.

    ``equal_rows``: equal prompts of a call are computed once. ``prefix``: tokens that prompts begin
    with alike are computed once. ``sorted``: prompts of similar length run together.
    ``last_layer``: the last layer runs at the positions that are read alone. ``label_rows``: with
    ``labels_only``, the head runs for the labels' tokens alone, and ``label_search``: of labels of
    several tokens, those that can still win are read alone. ``host_math``: on a CPU, numpy
    computes activations and softmax. ``few_tokens``: on a CPU, steps of decoding and short passes
    run in numpy. ``lanes``: on a CPU, each core runs a part of a micro-batch of its own.
    ``overlap``: on a GPU, a micro-batch is queued while the one before runs. ``cuts``: on a GPU,
    micro-batches are cut where they cost least, and have few shapes where the device plans each.
    ``prefix_cache``: what prompts of earlier calls began with is not computed again.
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
        """Take every fast path but those that the option ``without`` names."""
        asked = config.options.get("without", ())
        without = validate.texts("without", (asked,) if isinstance(asked, str) else asked)
        known = tuple(field.name for field in fields(cls))
        for name in without:
            if name not in known:
                raise InvalidOptionError("without", name, f"one of {', '.join(known)}")
        return cls(**dict.fromkeys(without, False))


@dataclass(frozen=True, slots=True)
class Footprint:
    """The bytes that a pass holds: for each token, and for each row's logits in float32.

    ``layers`` are those whose hidden states it holds at the same time.
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
    """The layers whose hidden states a device holds at once.

    MLX's CUDA backend keeps what a graph of kernels reads until that graph is done, and queues up
    to ten of them (``MAX_ACTIVE_TASKS``; by its limits for an H100, the largest). By reckoning, not
    measured. On Metal a large pass fills a command buffer with an operation or two.
    """
    if not on_gpu or platform.system() == "Darwin":
        return 1
    return min(config.num_layers, _LAYERS_IN_FLIGHT)


def pass_tokens(config: ModelConfig, on_gpu: bool) -> int:
    """The tokens that take as long as an almost empty pass: so many a prefix has to save.

    A CPU reads the weights meanwhile, and a CUDA GPU starts kernels, which takes the same time for
    every layer. By estimate, not measured: that of 4,096 tokens in a layer of Gemma-3-1B.
    """
    if not on_gpu or platform.system() == "Darwin":
        return _READ_WEIGHTS

    heads = 2 * (config.num_heads + config.num_kv_heads) * config.head_dim
    weights = config.hidden_size * (heads + 3 * config.intermediate_size)  # of a layer
    return max(_READ_WEIGHTS, _START_KERNELS // weights)


def cuts(config: ModelConfig, on_gpu: bool, fast: FastPaths) -> Cuts | None:
    """How micro-batches are cut; None where each is filled up, as suits a CPU's small ones.

    Where the device plans each shape, a pass costs all of `pass_tokens`: a plan takes longer.
    """
    if not (on_gpu and fast.sorted and fast.cuts):
        return None
    cost, planned = pass_tokens(config, on_gpu), _plans_shapes(config)
    return Cuts(cost if planned else max(_READ_WEIGHTS, cost // _HIDDEN), planned)


def _plans_shapes(config: ModelConfig) -> bool:
    """True if a GPU keeps a plan for each shape: CUDA, and heads that cuDNN attends with."""
    return platform.system() != "Darwin" and config.head_dim <= CUDNN_HEAD


def token_budget(
    options: LoadConfig, footprint: Footprint, on_gpu: bool, free: int | None, lanes: int = 1
) -> Chosen[int]:
    """Choose how many tokens of prompts one pass takes at most.

    ``free`` is the device's free memory in bytes, None where nobody knows. On a CPU, ``lanes``
    share the tokens.

    Raises `InvalidOptionError` for an option's wrong value.
    """
    asked = asked_integer(options, "token_budget", 1)
    if asked is not None:
        return asked

    wanted = _GPU_TOKENS if on_gpu else max(_CPU_TOKENS, _LANE_TOKENS * lanes)
    if free is not None:
        fits = max(_FEWEST_TOKENS, free // _SHARE // footprint.token)
        if fits < wanted:
            reason = f"a quarter of the {free / 1e9:.1f} GB free"
            if footprint.layers > 1:
                share = f"{footprint.token / 1e6:.2f} MB a token"
                reason += f", by a reckoned {share} with {footprint.layers} layers in flight"
            return Chosen("token_budget", fits, reason)

    if on_gpu:
        return Chosen("token_budget", wanted, "enough tokens a pass to keep a GPU busy")
    return Chosen("token_budget", wanted, "more tokens a pass do not run faster on a CPU")


def round_tokens(budget: int, on_gpu: bool) -> int:
    """Return how many label tokens a round of a search runs.

    The more, the fewer rounds, and the more nodes that were not needed. A GPU waits for its host
    between two rounds, so that there it is all that a pass takes: by estimate, not measured.
    """
    return budget if on_gpu else min(budget, _ROUND_TOKENS)


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices of one load; ``dtype`` is a key of `DTYPES`."""

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
        """The choices to show; ``budget`` and ``prefixes`` were made with the model in memory."""
        shown: list[Chosen[object]] = [self.dtype]
        if quantised:
            shown.append(self.dequantize)
        shown += [budget, self.length_step, self.parallel_slots, self.prefill_chunk, prefixes]
        return [chosen.choice for chosen in shown]


def kept_prefixes(config: LoadConfig, fast: FastPaths, free: int | None) -> Chosen[int]:
    """Choose how many bytes of recent prompts' keys and values are kept.

    ``free`` is the device's free memory in bytes, None where nobody knows. Raises
    `InvalidOptionError` for an option's wrong value.
    """
    chosen = prefix_cache(config, free)
    return chosen if fast.prefix_cache else Chosen(chosen.name, 0, "switched off by 'without'")


def template_name(config: LoadConfig) -> str | None:
    """Return the name of the chat template that is asked for, None where none is.

    Raises `InvalidOptionError` for an option's wrong type.
    """
    asked = config.options.get("chat_template")
    return None if asked is None else validate.text("chat_template", asked)


def _dtype(config: LoadConfig, on_gpu: bool, model: ModelConfig, chip: str) -> Chosen[str]:
    asked = config.options.get("dtype")
    if asked is not None:
        return Chosen("dtype", validate.one_of("dtype", asked, tuple(DTYPES)), ASKED)
    if on_gpu and _EMULATES_BFLOAT16.match(chip):
        if model.family.runs_float16:
            return Chosen("dtype", "float16", f"{chip} computes bfloat16 in software")
        reason = f"{model.model_type} passes what float16 holds, which {chip} would be faster with"
        return Chosen("dtype", "bfloat16", reason)
    if on_gpu:
        return Chosen("dtype", "bfloat16", "half the memory of float32, with its range")
    return Chosen("dtype", "float32", "MLX's low-precision products on CPU are far slower")


def _dequantize(config: LoadConfig, on_gpu: bool) -> Chosen[bool]:
    asked = config.options.get("dequantize")
    if asked is not None:
        return Chosen("dequantize", validate.flag("dequantize", asked), ASKED)
    if on_gpu:
        return Chosen("dequantize", False, "packed weights take less memory and bandwidth")
    return Chosen("dequantize", True, "MLX's products of packed weights are slow on a CPU")


def _prefill_chunk(config: LoadConfig, on_gpu: bool) -> Chosen[int]:
    asked = asked_integer(config, "prefill_chunk", 1)
    if asked is not None:
        return asked
    chunk = 1024 if on_gpu else 256
    return Chosen("prefill_chunk", chunk, "a long prompt does not hold up the rows that decode")


def _length_step(config: LoadConfig, on_gpu: bool, model: ModelConfig) -> Chosen[int]:
    asked = asked_integer(config, "length_step", 1)
    if asked is not None:
        return asked
    if on_gpu and _plans_shapes(model):  # a plan takes about 20 ms, and MLX keeps few of them
        return Chosen("length_step", 16, f"cuDNN plans each shape for heads of {model.head_dim}")
    if on_gpu:
        return Chosen("length_step", 4, "no plan is kept for a shape, and padding costs time")
    return Chosen("length_step", 1, "a CPU keeps nothing for a shape, and padding costs time")
