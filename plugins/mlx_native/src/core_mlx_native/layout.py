"""Which tensors a checkpoint must hold, by transformers' names, from its config alone."""

from __future__ import annotations

from collections.abc import Iterator

from core_mlx_native.checkpoint import Shape
from core_mlx_native.config import ModelConfig


def expected_tensors(config: ModelConfig) -> dict[str, Shape]:
    """Name and shape of every tensor, linear weights as ``(out, in)``."""
    tensors: dict[str, Shape] = {
        "model.embed_tokens.weight": (config.vocab_size, config.hidden_size),
        "model.norm.weight": (config.hidden_size,),
    }
    if not config.tied_head:
        tensors["lm_head.weight"] = (config.vocab_size, config.hidden_size)
    for index in range(config.num_layers):
        for name, shape in _layer(config):
            tensors[f"model.layers.{index}.{name}"] = shape
    return tensors


def _layer(config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim
    yield from _linear("self_attn.q_proj", queries, hidden, config.qkv_bias)
    yield from _linear("self_attn.k_proj", keys, hidden, config.qkv_bias)
    yield from _linear("self_attn.v_proj", keys, hidden, config.qkv_bias)
    yield from _linear("self_attn.o_proj", hidden, queries, config.output_bias)
    yield from _linear("mlp.gate_proj", inner, hidden, config.mlp_bias)
    yield from _linear("mlp.up_proj", inner, hidden, config.mlp_bias)
    yield from _linear("mlp.down_proj", hidden, inner, config.mlp_bias)
    for name in norm_names(config):
        yield f"{name}.weight", (hidden,)
    if config.family.qk_norm:
        yield "self_attn.q_norm.weight", (config.head_dim,)
        yield "self_attn.k_norm.weight", (config.head_dim,)


def norm_names(config: ModelConfig) -> tuple[str, ...]:
    """The norms over the hidden size of one layer, in the order in which they are applied."""
    if config.family.sandwich_norms:
        return (
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        )
    return ("input_layernorm", "post_attention_layernorm")


def _linear(name: str, rows: int, columns: int, bias: bool) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (rows, columns)
    if bias:
        yield f"{name}.bias", (rows,)
