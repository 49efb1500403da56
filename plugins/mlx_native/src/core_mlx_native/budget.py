"""How many tokens of prompts run together: what keeps the device busy, if the memory holds it."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Self

import mlx.core as mx

from core.options import LoadConfig
from core.serving.choices import asked_integer
from core.types import Choice
from core_mlx_native.config import ModelConfig

_CPU_TOKENS, _GPU_TOKENS = 1024, 16384
_LANE_TOKENS = 512  # with fewer, each core would read the weights too often
_FEWEST_TOKENS = 64
_READ_WEIGHTS = 32  # tokens
_START_KERNELS = 4096 * 27_000_000  # tokens, each times the weights of a layer
_SHARE = 4  # a pass may take one part in four of the memory that is free
_LOGIT_COPIES = 3  # of a row: raw, penalised, and what is drawn from


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a pass holds, in bytes: for each token, and for each row's logits, in float32."""

    token: int
    row: int

    @classmethod
    def of(cls, model: ModelConfig, dtype: mx.Dtype) -> Self:
        """Hidden states and the MLP's of one layer, keys and values of all of them."""
        hidden = 8 * model.hidden_size + 3 * model.intermediate_size
        cached = 2 * model.num_layers * model.num_kv_heads * model.head_dim
        return cls((hidden + cached) * dtype.size, _LOGIT_COPIES * 4 * model.vocab_size)

    @property
    def row_tokens(self) -> int:
        """How many tokens take as much memory as a row's logits."""
        return self.row // self.token


def pass_tokens(config: ModelConfig, on_gpu: bool) -> int:
    """How many tokens take as long as a pass that has hardly any: what a prefix has to save.

    A CPU reads the weights meanwhile, and a CUDA GPU starts kernels, which takes the same time for
    every layer. By estimate, not measured: that of 4,096 tokens in a layer of Gemma-3-1B.
    """
    if not on_gpu or platform.system() == "Darwin":
        return _READ_WEIGHTS
    heads = 2 * (config.num_heads + config.num_kv_heads) * config.head_dim
    weights = config.hidden_size * (heads + 3 * config.intermediate_size)  # of a layer
    return max(_READ_WEIGHTS, _START_KERNELS // weights)


def token_budget(
    options: LoadConfig, footprint: Footprint, on_gpu: bool, free: int | None, lanes: int = 1
) -> Choice:
    """Choose. ``free`` is the device's free memory in bytes, None where nobody knows; ``lanes``
    share a CPU's tokens.

    Raises `InvalidOptionError` for an option's wrong value.
    """
    asked = asked_integer(options, "token_budget", 1)
    if asked is not None:
        return asked
    wanted = _GPU_TOKENS if on_gpu else max(_CPU_TOKENS, _LANE_TOKENS * lanes)
    if free is not None:
        fits = max(_FEWEST_TOKENS, free // _SHARE // footprint.token)
        if fits < wanted:
            return Choice("token_budget", str(fits), f"a quarter of the {free / 1e9:.1f} GB free")
    if on_gpu:
        return Choice("token_budget", str(wanted), "enough tokens a pass to keep a GPU busy")
    return Choice("token_budget", str(wanted), "more tokens a pass do not run faster on a CPU")
