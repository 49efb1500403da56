"""One decoder for every family: tokens in, hidden states out, and a head to read them with.

Shapes: B rows, T tokens, H hidden size, D head size, S positions in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
from mlx import nn

from core_mlx_native.config import LayerKind, ModelConfig
from core_mlx_native.layers import ACTIVATIONS, Linear, RMSNorm, Weights, rotate
from core_mlx_native.layout import norm_names

KeysValues = tuple[mx.array, mx.array]  # each [B, kv heads, S, D], keys after rope


@dataclass(frozen=True, slots=True)
class View:
    """Where the tokens of one forward pass stand and what they may look at.

    ``positions`` as `layers.rotate` takes them; ``masks`` maps a layer's window to its mask,
    additive, broadcastable to [B, heads, T, S + T].
    """

    positions: int | mx.array
    masks: dict[int, mx.array]


class Attention(nn.Module):
    """Grouped-query attention with rope."""

    def __init__(self, config: ModelConfig, kind: LayerKind, weights: Weights, name: str) -> None:
        super().__init__()
        self.q_proj = Linear(weights, f"{name}.q_proj")
        self.k_proj = Linear(weights, f"{name}.k_proj")
        self.v_proj = Linear(weights, f"{name}.v_proj")
        self.o_proj = Linear(weights, f"{name}.o_proj")
        if config.family.qk_norm:
            self.q_norm = RMSNorm(weights[f"{name}.q_norm.weight"], config.rms_norm_eps)
            self.k_norm = RMSNorm(weights[f"{name}.k_norm.weight"], config.rms_norm_eps)
        self._heads, self._kv_heads = config.num_heads, config.num_kv_heads
        self._scale, self._window = config.attention_scale, kind.window
        self._periods = mx.array(kind.rope.periods)  # [D / 2]

    def __call__(
        self, x: mx.array, view: View, past: KeysValues | None
    ) -> tuple[mx.array, KeysValues]:
        queries = self._heads_first(self.q_proj(x), self._heads)  # [B, heads, T, D]
        keys = self._heads_first(self.k_proj(x), self._kv_heads)  # [B, kv heads, T, D]
        values = self._heads_first(self.v_proj(x), self._kv_heads)
        if "q_norm" in self:
            queries, keys = self.q_norm(queries), self.k_norm(keys)
        queries = rotate(queries, view.positions, self._periods)
        keys = rotate(keys, view.positions, self._periods)
        if past is not None:
            keys = mx.concatenate([past[0], keys], axis=2)  # [B, kv heads, S + T, D]
            values = mx.concatenate([past[1], values], axis=2)
        mixed = mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=self._scale, mask=view.masks[self._window]
        )
        flat = mixed.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)  # [B, T, heads * D]
        return self.o_proj(flat), (keys, values)

    def _heads_first(self, x: mx.array, heads: int) -> mx.array:
        return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


class MLP(nn.Module):
    """Gated feed-forward: ``down(activation(gate(x)) * up(x))``."""

    def __init__(self, config: ModelConfig, weights: Weights, name: str) -> None:
        super().__init__()
        self.gate_proj = Linear(weights, f"{name}.gate_proj")
        self.up_proj = Linear(weights, f"{name}.up_proj")
        self.down_proj = Linear(weights, f"{name}.down_proj")
        self._activation = ACTIVATIONS[config.family.activation]

    def __call__(self, x: mx.array) -> mx.array:
        return self.down_proj(self._activation(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention and MLP, each behind a norm; Gemma puts a second norm behind each as well."""

    def __init__(self, config: ModelConfig, index: int, weights: Weights) -> None:
        super().__init__()
        name = f"model.layers.{index}"
        self.self_attn = Attention(config, config.layers[index], weights, f"{name}.self_attn")
        self.mlp = MLP(config, weights, f"{name}.mlp")
        for norm in norm_names(config):
            weight = weights[f"{name}.{norm}.weight"]
            self[norm] = RMSNorm(weight, config.rms_norm_eps)
        self._sandwich = config.family.sandwich_norms

    def __call__(
        self, x: mx.array, view: View, past: KeysValues | None
    ) -> tuple[mx.array, KeysValues]:
        attended, cache = self.self_attn(self.input_layernorm(x), view, past)
        if self._sandwich:
            x = x + self.post_attention_layernorm(attended)
            fed = self.mlp(self.pre_feedforward_layernorm(x))
            return x + self.post_feedforward_layernorm(fed), cache
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), cache


class Decoder(nn.Module):
    """A causal language model; ``weights`` hold every tensor that `layout` lists."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = weights["model.embed_tokens.weight"]  # [vocabulary, H]
        self.layers = [Layer(config, index, weights) for index in range(config.num_layers)]
        self.norm = RMSNorm(weights["model.norm.weight"], config.rms_norm_eps)
        if not config.tied_head:
            self.lm_head = Linear(weights, "lm_head")

    def __call__(
        self, tokens: mx.array, view: View, past: Sequence[KeysValues] | None = None
    ) -> tuple[mx.array, list[KeysValues]]:
        """Hidden states [B, T, H] behind the last layer, and each layer's keys and values."""
        x = self.embed_tokens[tokens] * self.config.embedding_scale  # [B, T, H]
        cache: list[KeysValues] = []
        for index, layer in enumerate(self.layers):
            x, keys_values = layer(x, view, past[index] if past else None)
            cache.append(keys_values)
        return x, cache

    def logits(self, hidden: mx.array) -> mx.array:
        """Next-token logits, float32, for hidden states [..., H]: [..., vocabulary]."""
        normed = self.norm(hidden)
        if self.config.tied_head:
            return (normed @ self.embed_tokens.T).astype(mx.float32)
        return self.lm_head(normed).astype(mx.float32)

    @property
    def dtype(self) -> mx.Dtype:
        """What it computes in."""
        return self.norm.weight.dtype
