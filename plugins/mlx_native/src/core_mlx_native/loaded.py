"""Loading a model directory: config, tokenizer and weights become a model in memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from core.errors import InvalidOptionError
from core.options import LoadConfig
from core.types import Choice, ModelInfo
from core_mlx_native import memory
from core_mlx_native.adapters.apply import twin
from core_mlx_native.adapters.files import StoredAdapter, read_adapter
from core_mlx_native.adapters.loading import adapted
from core_mlx_native.availability import apple_chip, free_memory
from core_mlx_native.checkpoint.weights import load_weights
from core_mlx_native.chosen import (
    DTYPES,
    Choices,
    FastPaths,
    Footprint,
    cuts,
    kept_prefixes,
    layers_in_flight,
    pass_tokens,
    round_tokens,
    token_budget,
)
from core_mlx_native.cpu.lanes import usable_lanes
from core_mlx_native.cpu.ops import CpuOps
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.ops import Ops
from core_mlx_native.network.prefix_store import PrefixStore
from core_runtime.checkpoint.config import ModelConfig, load_config
from core_runtime.checkpoint.fields import JsonFiles
from core_runtime.checkpoint.generation_keys import check_generation
from core_runtime.checkpoint.keys import report
from core_runtime.checkpoint.own_files import report_unread
from core_runtime.choices import suits_dense, template_name
from core_runtime.cuts import Cuts
from core_runtime.processor import cpu_flags
from core_runtime.served import Memory
from core_runtime.tokenizer.files import stop_tokens
from core_runtime.tokenizer.model_tokenizer import Tokenizer

# How far one prompt's logits may move with the shape of its batch. In float32 on a CPU, 72 prompts
# on two real models moved by up to 6.1e-5; a low-precision GPU kernel that adds in another order
# may move a logit near 16 by a few units in its last place (2**-6 in float16, 2**-3 in bfloat16).
_TOLERANCE = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}
_ADAPTER = "adapter"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory: the decoder, its tokenizer, and the settings chosen at load.

    ``token_budget``: tokens of one prefill; ``row_tokens``: its share for a row's logits, in
    tokens; ``pass_tokens``: tokens that a shared prefix has to save; ``slots``: rows that decode
    concurrently; ``prefill_chunk``: prompt tokens between two decode steps; ``length_step``: rows
    of `classify` and `score` are padded to a multiple of it; ``cuts``: costs for cutting rows into
    micro-batches, None to fill each one; ``lanes``: parts of a micro-batch that run in parallel;
    ``overlap``: a step is queued while the previous one runs; ``prefixes``: the prefix cache;
    ``base``: the network without an adapter, ``decoder`` itself without an adapter.
    """

    config: ModelConfig
    decoder: Decoder
    tokenizer: Tokenizer
    info: ModelInfo
    stop_ids: frozenset[int]
    token_budget: int
    row_tokens: int
    pass_tokens: int
    slots: int
    prefill_chunk: int
    length_step: int
    cuts: Cuts | None
    lanes: int
    rotates: bool
    overlap: bool
    prefixes: PrefixStore
    fast: FastPaths
    choices: Sequence[Choice]
    base: Decoder

    @property
    def own_context(self) -> int:
        """The model's own context length."""
        return self.config.context_length

    @property
    def round_tokens(self) -> int:
        """The number of label tokens per round when only the best label is searched."""
        return round_tokens(self.token_budget, self.overlap)

    def memory(self) -> Memory:
        """Return the memory used by MLX in this process, for all models together."""
        return Memory(memory.get_peak_memory(), memory.get_active_memory())


def load_decoder(
    directory: Path,
    dtype: str = "float32",
    dequantize: bool = True,
    ops: Ops | None = None,
    config: ModelConfig | None = None,
) -> Decoder:
    """Load only the decoder; ``dtype`` is a key of `DTYPES`, ``ops`` defaults to a CPU's.

    ``config`` is the result of `load_config`, for a caller that already has it.
    """
    config = config or load_config(directory)
    weights = load_weights(directory, config, DTYPES[dtype], dequantize)
    return Decoder(config, weights, ops or CpuOps())


def load(directory: Path, options: LoadConfig, on_gpu: bool) -> LoadedModel:
    """Load the complete model, on the thread that will own it.

    Raises `ModelError` for a bad directory, `InvalidOptionError` for bad options.
    """
    # The config, and the settings chosen from it and the options.
    files = JsonFiles(directory)
    config = load_config(directory, files=files)
    context = _context(config, options.context_len)
    chip = apple_chip() if on_gpu else ""
    chosen, fast = Choices.of(options, on_gpu, config, chip), FastPaths.of(options)
    dtype, dequantize = chosen.dtype.value, chosen.dequantize.value
    footprint = Footprint.of(config, DTYPES[dtype], layers_in_flight(config, on_gpu))
    lanes = usable_lanes() if fast.lanes and not on_gpu else 1
    token_budget(
        options, footprint, on_gpu, free=None
    )  # rejects a wrong value before the weights are read
    kept_prefixes(options, fast, free=None)
    path = options.adapter_path
    stored = None if path is None else read_adapter(path, config)
    check_generation(files)
    report(config.notes, str(directory / "config.json"))
    unread = report_unread(directory, with_adapter=path is not None)

    # The tokenizer, and the tokens that end a generation.
    tokenizer = Tokenizer.from_directory(directory, files, template_name(options))
    tokenizer.check_rows(config.vocab_size, directory)
    stop_ids = stop_tokens(directory, tokenizer.library, config.vocab_size, files)

    # The weights; the memory left after them limits a pass.
    numpy_fits = dtype == "float32"
    ops = Ops() if on_gpu else CpuOps(fast.host_math and numpy_fits, fast.few_tokens and numpy_fits)
    base = load_decoder(directory, dtype, dequantize, ops, config)
    decoder = base if stored is None else adapted(base, stored)[0]
    free = free_memory(on_gpu)
    budget = token_budget(options, footprint, on_gpu, free, lanes)
    prefix_bytes = kept_prefixes(options, fast, free)
    suits = () if on_gpu else (suits_dense(cpu_flags()),)
    if on_gpu:
        memory.wire_large_models()

    # A sliding context drops its oldest positions: it is a window for all layers.
    rotates = options.context_overflow == "rotate"
    limit = context if rotates else 0
    windows = [min(filter(None, (kind.window, limit)), default=0) for kind in config.layers]

    return LoadedModel(
        config=config,
        decoder=decoder,
        tokenizer=tokenizer,
        info=_info(config, context, dtype),
        stop_ids=stop_ids,
        token_budget=budget.value,
        row_tokens=footprint.row_tokens,
        pass_tokens=pass_tokens(config, on_gpu),
        slots=chosen.parallel_slots.value,
        prefill_chunk=chosen.prefill_chunk.value,
        length_step=chosen.length_step.value,
        cuts=cuts(config, on_gpu, fast),
        lanes=lanes,
        rotates=rotates,
        overlap=on_gpu,
        prefixes=PrefixStore(ops, windows, prefix_bytes.value, partial(free_memory, on_gpu)),
        fast=fast,
        choices=[
            *chosen.shown(budget, prefix_bytes, config.quantization is not None),
            *suits,
            *tokenizer.borrowed_format,
            *_adapter_choice(stored),
            *unread,
        ],
        base=base,
    )


def with_adapter(loaded: LoadedModel, path: str | os.PathLike[str] | None) -> LoadedModel:
    """Return the same model with another adapter, or with none.

    The two share no computed state.

    Weights are shared. Run this on the owner thread. Raises like `read_adapter` and `adapted`.
    """
    stored = None if path is None else read_adapter(path, loaded.config)
    base = twin(loaded.base)  # separate: closing a model empties its network
    others = [choice for choice in loaded.choices if choice.name != _ADAPTER]
    return replace(
        loaded,
        decoder=base if stored is None else adapted(base, stored)[0],
        base=base,
        tokenizer=loaded.tokenizer.share(),
        prefixes=loaded.prefixes.another(),
        choices=[*others, *_adapter_choice(stored)],
    )


def with_own_base(loaded: LoadedModel) -> LoadedModel:
    """Return the same model with a separate base, which stays without adapters."""
    if loaded.base is not loaded.decoder:
        return loaded
    return replace(loaded, base=twin(loaded.decoder))


def _adapter_choice(stored: StoredAdapter | None) -> list[Choice]:
    if stored is None:
        return []
    described = f"{stored.described}, {stored.layout} layout"
    return [Choice(_ADAPTER, stored.directory.name, described)]


def _info(config: ModelConfig, context: int, dtype: str) -> ModelInfo:
    quantization = config.quantization
    return ModelInfo(
        architecture=config.model_type,
        vocab_size=config.vocab_size,
        num_layers=config.num_layers,
        hidden_size=config.hidden_size,
        quant_bits=quantization.default.bits if quantization else 0,
        quant_group=quantization.default.group_size if quantization else 0,
        context_length=context,
        logit_tolerance=_TOLERANCE[dtype],
    )


def _context(config: ModelConfig, requested: int) -> int:
    if requested > config.context_length:
        raise InvalidOptionError(
            "context_len", requested, f"at most {config.context_length}, the model's context length"
        )
    return requested or config.context_length
