"""Grouped-query attention with rope.

Shapes: B rows, T tokens, H hidden size, D head size, S positions in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import mlx.core as mx
from mlx import nn

from core_mlx_native import host_math
from core_mlx_native.config import LayerKind, ModelConfig
from core_mlx_native.layers import Linear, Linears, RMSNorm, softcap
from core_mlx_native.rotation import Ends, Rotation, View
from core_mlx_native.weights import Weights

KeysValues = tuple[mx.array, mx.array]  # each [B, kv heads, S, D], keys after rope


class Past(Protocol):
    """What one layer has seen before."""

    def update(self, keys: mx.array, values: mx.array) -> KeysValues:
        """Take the keys and values of T new tokens; all that there are to look at now."""
        ...


class Attention(nn.Module):
    """One layer's attention."""

    def __init__(
        self,
        config: ModelConfig,
        kind: LayerKind,
        rotation: Rotation,
        weights: Weights,
        name: str,
    ) -> None:
        super().__init__()
        self.qkv_proj = Linears(weights, [f"{name}.{part}_proj" for part in "qkv"])
        self.o_proj = Linear(weights, f"{name}.o_proj")
        if config.family.qk_norm:
            self.q_norm = RMSNorm(weights, f"{name}.q_norm", config.rms_norm_eps)
            self.k_norm = RMSNorm(weights, f"{name}.k_norm", config.rms_norm_eps)
        self._heads, self._kv_heads = config.num_heads, config.num_kv_heads
        self._scale, self._window = config.attention_scale, kind.window
        self._cap = config.attention_cap
        self._rotation = rotation

    def __call__(
        self, x: mx.array, view: View, past: Past | None, ends: Ends | None = None
    ) -> tuple[mx.array, KeysValues]:
        """What the tokens, or only the ``ends``, get: [B, T, H]; and all keys and values."""
        asked, asking = self._project(x, ends)
        queries = self._heads_first(asked[0], self._heads)  # [B, heads, T, D]
        keys = self._heads_first(asked[1], self._kv_heads)  # [B, kv heads, T, D]
        values = self._heads_first(asked[2], self._kv_heads)
        if "q_norm" in self:
            queries, keys = self.q_norm(queries), self.k_norm(keys)
        from_where = ends.view if ends else view
        queries = self._rotation.turn(queries, from_where)
        keys = self._rotation.turn(keys, view)
        if past is not None:
            keys, values = past.update(keys, values)  # [B, kv heads, S + T, D]
        mixed = self._mix(queries, keys, values, from_where)
        flat = mixed.transpose(0, 2, 1, 3).reshape(*asking.shape[:2], -1)  # [B, T, heads * D]
        return self.o_proj(flat), (keys, values)

    def _project(self, x: mx.array, ends: Ends | None) -> tuple[Sequence[mx.array], mx.array]:
        """Queries, keys and values; and the hidden states that the queries come from."""
        if ends is None:
            return self.qkv_proj(x), x
        asking = ends.of(x)
        queries = self.qkv_proj.part(0, asking)
        return (queries, self.qkv_proj.part(1, x), self.qkv_proj.part(2, x)), asking

    def _heads_first(self, x: mx.array, heads: int) -> mx.array:
        return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    def _mix(self, queries: mx.array, keys: mx.array, values: mx.array, view: View) -> mx.array:
        mask = view.masks[self._window]
        if view.host and not isinstance(mask, str):
            return host_attention(queries, keys, values, self._scale, self._cap, mask)
        if self._cap is not None and not isinstance(mask, str):
            return capped_attention(queries, keys, values, self._scale, self._cap, mask)
        return mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=self._scale, mask=mask
        )


def host_attention(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    scale: float,
    cap: float | None,
    mask: mx.array | None,
) -> mx.array:
    """Attention on a CPU, its softmax in `host_math`: [B, heads, T, D].

    The queries that share keys are rows of one product.
    """
    batch, heads, length, dim = queries.shape
    kv_heads = keys.shape[1]
    grouped = (queries * scale).reshape(batch, kv_heads, -1, dim)  # [B, kv heads, group * T, D]
    scores = grouped @ keys.swapaxes(-1, -2)  # [B, kv heads, group * T, S]
    shares = host_math.softmax(scores, mask, cap)
    return (shares @ values).reshape(batch, heads, length, dim)


def capped_attention(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    scale: float,
    cap: float,
    mask: mx.array | None,
) -> mx.array:
    """Attention whose scores are softly capped before the mask: [B, heads, T, D].

    MLX's fused attention has no cap. Scores are capped and normalised in float32.
    """
    batch, heads, length, dim = queries.shape
    kv_heads = keys.shape[1]
    grouped = (queries * scale).reshape(batch, kv_heads, heads // kv_heads, length, dim)
    scores = grouped @ keys[:, :, None].swapaxes(-1, -2)  # [B, kv heads, group, T, S]
    scores = softcap(scores.astype(mx.float32), cap)
    if mask is not None:
        scores = scores + mask[:, :, None]
    shares = mx.softmax(scores, axis=-1).astype(values.dtype)
    return (shares @ values[:, :, None]).reshape(batch, heads, length, dim)
