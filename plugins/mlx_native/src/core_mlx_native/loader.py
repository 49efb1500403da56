"""From a directory to a model in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import InvalidModelError, InvalidOptionError
from core.options import LoadConfig
from core.serving.served import Memory
from core.types import Choice, ModelInfo
from core_mlx_native import memory
from core_mlx_native.budget import Footprint, pass_tokens, token_budget
from core_mlx_native.chosen import DTYPES, Choices
from core_mlx_native.config import ModelConfig, load_config
from core_mlx_native.decoder import Decoder
from core_mlx_native.devices import free_memory
from core_mlx_native.fast import FastPaths
from core_mlx_native.kv_cache import CacheShape
from core_mlx_native.lanes import usable_lanes
from core_mlx_native.stop_tokens import stop_tokens
from core_mlx_native.tokenizer import Tokenizer
from core_mlx_native.weights import load_weights

# How far one prompt's logits may move with the shape of its batch. In float32 on a CPU, 72 prompts
# on two real models moved by up to 6.1e-5; a low-precision GPU kernel that adds in another order
# may move a logit near 16 by a few units in its last place (2**-6 in float16, 2**-3 in bfloat16).
_TOLERANCE = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What a load leaves: the decoder, its tokenizer, and what was chosen on the way.

    ``token_budget``: tokens of one prefill; ``row_tokens``: how many a row's logits count for in
    it; ``slots``: rows that decode together;
    ``prefill_chunk``: tokens of a prompt between two decode steps; ``length_step``: rows of
    `classify` are padded to a multiple of so many tokens; ``lanes``: so many parts of a
    micro-batch of `classify` run side by side; ``overlap``: whether a step is queued while the
    one before runs.
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
    lanes: int
    rotates: bool
    overlap: bool
    fast: FastPaths
    choices: Sequence[Choice]

    @property
    def overlaps_classify(self) -> bool:
        """Whether a micro-batch is queued before the one before has been read."""
        return self.overlap and self.fast.overlap

    def memory(self) -> Memory:
        """What MLX holds in this process, all models together."""
        return Memory(memory.get_peak_memory(), memory.get_active_memory())

    def cache_shape(self) -> CacheShape:
        """What a cache for this model is made of."""
        return CacheShape(
            tuple(kind.window for kind in self.config.layers),
            self.config.num_kv_heads,
            self.config.head_dim,
            self.decoder.dtype,
            self.info.context_length if self.rotates else 0,
        )


def load_decoder(
    directory: Path, dtype: str = "float32", dequantize: bool = True, host_math: bool = False
) -> Decoder:
    """The decoder alone; ``dtype`` is a key of `DTYPES`."""
    config = load_config(directory)
    weights = load_weights(directory, config, DTYPES[dtype], dequantize)
    return Decoder(config, weights, host_math)


def load(directory: Path, options: LoadConfig, on_gpu: bool) -> LoadedModel:
    """Load everything, on the thread that will own it.

    Raises `ModelError` for what is wrong in the directory, `InvalidOptionError` for options.
    """
    config = load_config(directory)
    context = _context(config, options.context_len)
    chosen, fast = Choices.of(options, on_gpu), FastPaths.of(options)
    dtype, dequantize = chosen.dtype.value, chosen.dequantize.value == "True"
    footprint = Footprint.of(config, DTYPES[dtype])
    lanes = usable_lanes() if fast.lanes and not on_gpu else 1
    token_budget(options, footprint, on_gpu, free=None)  # a wrong one is refused before the weights
    tokenizer = Tokenizer.from_directory(directory)
    if tokenizer.vocab_size > config.vocab_size:
        raise InvalidModelError(
            f"{directory}: the tokenizer has {tokenizer.vocab_size} tokens and the model only "
            f"{config.vocab_size}. They do not belong together."
        )
    stop_ids = stop_tokens(directory, tokenizer.library, config.vocab_size)
    on_host = fast.host_math and not on_gpu and dtype == "float32"
    decoder = load_decoder(directory, dtype, dequantize, on_host)
    budget = token_budget(options, footprint, on_gpu, free_memory(on_gpu), lanes)
    return LoadedModel(
        config,
        decoder,
        tokenizer,
        _info(config, context, dtype),
        stop_ids,
        int(budget.value),
        footprint.row_tokens,
        pass_tokens(config, on_gpu),
        int(chosen.parallel_slots.value),
        int(chosen.prefill_chunk.value),
        int(chosen.length_step.value),
        lanes,
        rotates=options.context_overflow == "rotate",
        overlap=on_gpu,
        fast=fast,
        choices=chosen.shown(budget, quantised=config.quantization is not None),
    )


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


def _context(config: ModelConfig, asked: int) -> int:
    if asked > config.context_length:
        raise InvalidOptionError(
            "context_len", asked, f"at most {config.context_length}, what the model was made for"
        )
    return asked or config.context_length
