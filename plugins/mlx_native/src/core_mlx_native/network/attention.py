"""Grouped-query attention with RoPE.

Shapes: B rows, T tokens, H hidden size, D head size, S positions in the cache.
"""

from __future__ import annotations

import mlx.core as mx
from mlx import nn

from core_mlx_native.checkpoint.weights import Weights
from core_mlx_native.network.layers import Linear, Linears, RMSNorm
from core_mlx_native.network.ops import Ops
from core_mlx_native.network.rotary import Ends, RotaryEmbedding, View
from core_mlx_native.network.values import KeysValues, Past
from core_runtime.checkpoint.config import LayerKind, ModelConfig


class Attention(nn.Module):
    """Grouped-query attention of one layer."""

    def __init__(
        self,
        config: ModelConfig,
        kind: LayerKind,
        rotary: RotaryEmbedding,
        weights: Weights,
        name: str,
        ops: Ops,
    ) -> None:
        super().__init__()
        names = [f"{name}.{part}_proj" for part in "qkv"]
        self.qkv_proj = Linears(weights, names, ops, together=True)
        self.o_proj = Linear(weights, f"{name}.o_proj", ops)
        if config.family.qk_norm:
            self.q_norm = RMSNorm(weights, f"{name}.q_norm", config.rms_norm_eps, ops)
            self.k_norm = RMSNorm(weights, f"{name}.k_norm", config.rms_norm_eps, ops)

        self._heads, self._kv_heads = config.num_heads, config.num_kv_heads
        self._scale, self._window = config.attention_scale, kind.window
        self._cap = config.attention_cap
        self.rotary, self._ops = rotary, ops

    def __call__(
        self, x: mx.array, view: View, past: Past | None, ends: Ends | None = None
    ) -> tuple[mx.array, KeysValues]:
        """Return the output for all tokens, or only for the ``ends``, and all keys and values.

        The output is [B, T, H], or [B, R, H] with ``ends``.
        """
        # Queries only for the ends, keys and values for all tokens.
        query_view = ends.view if ends else view
        query_source = ends.of(x) if ends else x
        queries, keys, values = self.qkv_proj(query_source, x, x) if ends else self.qkv_proj(x)

        # Norms of the heads, if the family has them, then RoPE.
        queries = self._heads_first(queries, self._heads)  # [B, heads, T, D]
        keys = self._heads_first(keys, self._kv_heads)  # [B, kv heads, T, D]
        values = self._heads_first(values, self._kv_heads)
        if "q_norm" in self:
            queries, keys = self.q_norm(queries), self.k_norm(keys)
        queries = self.rotary.rotate(queries, query_view)
        keys = self.rotary.rotate(keys, view)

        if past is not None:
            keys, values = past.update(keys, values)  # [B, kv heads, S + T, D]

        mask = query_view.masks[self._window]
        mixed = self._ops.attention(queries, keys, values, self._scale, self._cap, mask)
        flat = mixed.transpose(0, 2, 1, 3).reshape(*query_source.shape[:2], -1)  # [B, T, heads * D]
        return self.o_proj(flat), (keys, values)

    def _heads_first(self, x: mx.array, heads: int) -> mx.array:
        return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)
