"""From a directory to a model in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx

from core.errors import InvalidModelError, InvalidOptionError
from core.options import LoadConfig
from core.types import Choice, ModelInfo
from core_mlx_native.config import ModelConfig, load_config
from core_mlx_native.decoder import Decoder
from core_mlx_native.tokenizer import Tokenizer
from core_mlx_native.weights import load_weights

DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}

# How far one prompt's logits may move with the shape of its batch. In float32 on a CPU, 72 prompts
# on two real models moved by up to 6.1e-5; a low-precision GPU kernel that adds in another order
# may move a logit near 16 by a few units in its last place (2**-6 in float16, 2**-3 in bfloat16).
_TOLERANCE = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What a load leaves: the decoder, its tokenizer, and what was chosen on the way."""

    config: ModelConfig
    decoder: Decoder
    tokenizer: Tokenizer
    info: ModelInfo
    token_budget: int
    choices: Sequence[Choice]


def load_decoder(directory: Path, dtype: str = "float32", dequantize: bool = True) -> Decoder:
    """The decoder alone; ``dtype`` is a key of `DTYPES`."""
    config = load_config(directory)
    return Decoder(config, load_weights(directory, config, DTYPES[dtype], dequantize))


def load(directory: Path, load_config_: LoadConfig, on_gpu: bool) -> LoadedModel:
    """Load everything, on the thread that will own it.

    Raises `ModelError` for what is wrong in the directory, `InvalidOptionError` for options.
    """
    config = load_config(directory)
    context = _context(config, load_config_.context_len)
    dtype = _dtype(load_config_, on_gpu)
    dequantize = _dequantize(load_config_, on_gpu)
    budget = _budget(load_config_, on_gpu)
    tokenizer = Tokenizer.from_directory(directory)
    if tokenizer.vocab_size > config.vocab_size:
        raise InvalidModelError(
            f"{directory}: the tokenizer has {tokenizer.vocab_size} tokens and the model only "
            f"{config.vocab_size}. They do not belong together."
        )
    decoder = load_decoder(directory, dtype.value, dequantize.value == "True")
    return LoadedModel(
        config,
        decoder,
        tokenizer,
        _info(config, context, dtype.value),
        int(budget.value),
        (dtype, dequantize, budget) if config.quantization else (dtype, budget),
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


def _dtype(config: LoadConfig, on_gpu: bool) -> Choice:
    asked = config.options.get("dtype")
    if asked is not None:
        if not isinstance(asked, str) or asked not in DTYPES:
            raise InvalidOptionError("dtype", asked, f"one of {', '.join(DTYPES)}")
        return Choice("dtype", str(asked), "asked for")
    if on_gpu:
        return Choice("dtype", "bfloat16", "half the memory of float32, with its range")
    return Choice("dtype", "float32", "MLX's low-precision products on CPU are far slower")


def _dequantize(config: LoadConfig, on_gpu: bool) -> Choice:
    asked = config.options.get("dequantize")
    if asked is not None:
        if not isinstance(asked, bool):
            raise InvalidOptionError("dequantize", asked, "True or False")
        return Choice("dequantize", str(asked), "asked for")
    if on_gpu:
        return Choice("dequantize", "False", "a GPU has fast products of packed weights, and they take less memory")
    return Choice("dequantize", "True", "MLX's products of packed weights are slow on a CPU")


def _budget(config: LoadConfig, on_gpu: bool) -> Choice:
    asked = config.options.get("token_budget")
    if asked is not None:
        if not isinstance(asked, int) or isinstance(asked, bool) or asked < 1:
            raise InvalidOptionError("token_budget", asked, "a whole number from 1")
        return Choice("token_budget", str(asked), "asked for")
    if on_gpu:
        return Choice("token_budget", "8192", "enough tokens a pass to keep a GPU busy")
    return Choice("token_budget", "1024", "more tokens a pass do not run faster on a CPU")
