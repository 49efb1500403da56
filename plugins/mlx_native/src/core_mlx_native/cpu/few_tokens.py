"""A layer over a few tokens in numpy, for a decoding step or a short pass.

MLX takes about 10 us for each of the 90 to 150 operations of a layer, whatever their size; numpy
takes about 1 us, and needs a third as many. Its products with one row read the weights twice as
fast, through a BLAS function that MLX never calls. The weights are views of MLX's arrays, and keys
and values stay in MLX.

Shapes: B rows, T tokens, M = B * T, H hidden size, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Self

import mlx.core as mx
import numpy as np

from core_mlx_native.adapters.layers import LoRALinear, LoRALinears
from core_mlx_native.cpu.numpy_ops import WEIGHED
from core_mlx_native.cpu.product import Floats, Functions, Product, functions
from core_mlx_native.network.decoder import Layer
from core_mlx_native.network.layers import Dense, Linear, Linears, RMSNorm
from core_mlx_native.network.rotary import View
from core_mlx_native.network.values import KeysValues, Mask, Past, buffer_of
from core_runtime.checkpoint.config import LayerKind, ModelConfig
from core_runtime.checkpoint.tensors import norm_names


class Norm:
    """A root-mean-square norm over the last axis, of one vector or of heads [.., heads, D]."""

    def __init__(self, norms: Sequence[RMSNorm]) -> None:
        self._weight: Floats = np.stack([np.asarray(norm.weight) for norm in norms])
        self._eps = np.float32(norms[0].eps)
        self._share = np.float32(1 / self._weight.shape[-1])

    def __call__(self, x: Floats) -> Floats:
        squares = np.einsum("...i,...i->...", x, x)
        squares *= self._share
        squares += self._eps
        np.sqrt(squares, out=squares)
        normed: Floats = x / squares[..., None]
        normed *= self._weight
        return normed


class Added:
    """An adapter's part of a map: ``y = gain * (y + x A B)`` in its columns; B has the scale."""

    def __init__(self, adapted: LoRALinear, columns: slice, by: Functions) -> None:
        scaled = adapted.scale * adapted.lora_b.astype(mx.float32)  # [rank, out]
        whole = [mx.contiguous(x.astype(mx.float32)) for x in (adapted.lora_a, scaled)]
        mx.eval(whole)
        self._down, self._up = (Product(np.asarray(x), by) for x in whole)
        self._gain: Floats | None = np.asarray(adapted.gain()) if "m" in adapted else None
        self._columns = columns

    def to(self, y: Floats, x: Floats) -> None:
        """Add it to ``y`` [M, all columns], the base's output for ``x`` without bias."""
        low = np.empty((len(x), self._down.rows), np.float32)
        delta = np.empty((len(x), self._up.rows), np.float32)
        self._down.into(x, low)
        self._up.into(low, delta)
        own = y[:, self._columns]
        own += delta
        if self._gain is not None:
            own *= self._gain


class NumpyLinear:
    """``x @ weight.T + bias`` of one linear map, or of several with concatenated results."""

    def __init__(
        self, transposed: mx.array, linears: Sequence[Linear | LoRALinear], by: Functions
    ) -> None:
        self._product = Product(np.asarray(transposed), by)
        plain = [_plain(linear) for linear in linears]
        biases = [np.asarray(linear.bias) for linear in plain if "bias" in linear]
        self._bias: Floats | None = np.concatenate(biases) if biases else None

        # Adapters, by the columns of their maps.
        ends = list(accumulate(linear.matrix.shape[0] for linear in plain))
        columns = map(slice, [0, *ends], ends)
        self._added = [
            Added(linear, own, by)
            for linear, own in zip(linears, columns, strict=False)
            if isinstance(linear, LoRALinear)
        ]

    @classmethod
    def of(cls, linear: Linear | LoRALinear, by: Functions) -> Self:
        """Return the map of one linear layer."""
        return cls(_plain(linear).matrix.transposed, [linear], by)

    def __call__(self, x: Floats) -> Floats:
        y = np.empty((len(x), self._product.rows), np.float32)
        self._product.into(x, y)
        for added in self._added:
            added.to(y, x)
        if self._bias is not None:
            y += self._bias
        return y


class FewTokens:
    """One layer for few tokens, equivalent to `Layer` and built from its weights."""

    def __init__(self, layer: Layer, config: ModelConfig, kind: LayerKind, by: Functions) -> None:
        attention, mlp, family = layer.self_attn, layer.mlp, config.family
        self._by, self._rotary = by, attention.rotary
        self._heads, self._kv_heads = config.num_heads, config.num_kv_heads
        self._dim = config.head_dim
        self._scale, self._window = np.float32(config.attention_scale), kind.window
        self._cap, self._weigh = config.attention_cap, WEIGHED[family.activation]

        # The maps; one product makes queries, keys and values.
        self._qkv = NumpyLinear(_stacked(attention.qkv_proj), attention.qkv_proj.maps, by)
        self._output = NumpyLinear.of(attention.o_proj, by)
        self._gate, self._up = (NumpyLinear.of(linear, by) for linear in mlp.gate_up_proj.maps)
        self._down = NumpyLinear.of(mlp.down_proj, by)

        # The norms; those of queries and keys are joined, with a row per head.
        self._norms = {name: Norm([layer[name]]) for name in norm_names(config)}
        self._qk_norm: Norm | None = None
        if family.qk_norm:
            heads = [attention.q_norm] * self._heads + [attention.k_norm] * self._kv_heads
            self._qk_norm = Norm(heads)
        self._sandwich = family.sandwich_norms

    @classmethod
    def of(cls, layer: Layer, config: ModelConfig, kind: LayerKind) -> Self | None:
        """Return the layer for few tokens; None without a usable BLAS, or for quantised weights."""
        by = functions()
        attention, mlp = layer.self_attn, layer.mlp
        linears = *attention.qkv_proj.maps, attention.o_proj, *mlp.gate_up_proj.maps, mlp.down_proj
        dense = all(isinstance(_plain(linear).matrix, Dense) for linear in linears)
        return cls(layer, config, kind, by) if by and dense else None

    @np.errstate(all="ignore")  # NaN of a broken model is detected in its logits
    def __call__(self, x: mx.array, view: View, past: Past | None) -> tuple[mx.array, KeysValues]:
        """Return the hidden states of the tokens and all keys and values, as `Layer` does."""
        hidden: Floats = np.asarray(x).reshape(-1, x.shape[-1])  # [M, H]
        normed = self._norms["input_layernorm"](hidden)
        attended, cache = self._attention(normed, x.shape[1], view, past)

        if self._sandwich:
            hidden = hidden + self._norms["post_attention_layernorm"](attended)
            fed = self._mlp(self._norms["pre_feedforward_layernorm"](hidden))
            hidden += self._norms["post_feedforward_layernorm"](fed)
        else:
            hidden = hidden + attended
            hidden += self._mlp(self._norms["post_attention_layernorm"](hidden))
        return mx.array(hidden.reshape(x.shape)), cache

    def _attention(
        self, x: Floats, length: int, view: View, past: Past | None
    ) -> tuple[Floats, KeysValues]:
        heads, kv_heads = self._heads, self._kv_heads
        joined = self._qkv(x).reshape(-1, length, heads + 2 * kv_heads, self._dim)  # [B, T, .., D]
        batch = len(joined)

        # Norm and RoPE of queries and keys together.
        both = joined[:, :, : heads + kv_heads]
        if self._qk_norm is not None:
            both = self._qk_norm(both)
        both = _turned(both, *view.tables(self._rotary, length)).transpose(0, 2, 1, 3)
        values = joined[:, :, heads + kv_heads :].transpose(0, 2, 1, 3)
        keys, values, cache = _appended(past, both[:, heads:], values)  # [B, kv heads, S, D]

        # The queries that share keys are rows of one product.
        queries = np.multiply(both[:, :heads], self._scale, order="C")
        queries = queries.reshape(batch, kv_heads, -1, self._dim)
        scores = self._by.by_heads(queries, keys, transposed=True)
        shares = self._shares(scores, view.masks[self._window], length)
        mixed = self._by.by_heads(shares, values, transposed=False)
        if length > 1:
            mixed = mixed.reshape(batch, heads, length, -1).transpose(0, 2, 1, 3)
        return self._output(mixed.reshape(batch * length, -1)), cache

    def _shares(self, scores: Floats, mask: Mask, length: int) -> Floats:
        """Compute softmax over the last axis of [B, kv heads, group * T, S], in place."""
        if self._cap is not None:
            scores /= np.float32(self._cap)
            np.tanh(scores, out=scores)
            scores *= np.float32(self._cap)
        if mask is not None:  # [1 or B, 1, T, S]
            batch, kv_heads, rows, size = scores.shape
            grouped = scores.reshape(batch, kv_heads, rows // length, length, size)
            grouped += np.asarray(mask)[:, :, None]
        scores -= scores.max(-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(-1, keepdims=True)
        return scores

    def _mlp(self, x: Floats) -> Floats:
        gate, up = self._gate(x), self._up(x)
        weighed = np.empty_like(gate)
        self._weigh(gate, weighed)
        weighed *= up
        return self._down(weighed)


def _plain(linear: Linear | LoRALinear) -> Linear:
    return linear.linear if isinstance(linear, LoRALinear) else linear


def _stacked(linears: Linears | LoRALinears) -> mx.array:
    return (linears.linears if isinstance(linears, LoRALinears) else linears).stacked


def _appended(past: Past | None, keys: Floats, values: Floats) -> tuple[Floats, Floats, KeysValues]:
    """Return all keys and values that the pass sees, once for numpy and once for MLX.

    The new ones are written into a `Buffer` in place: other views of it end before them.
    """
    if (buffer := buffer_of(past)) is not None:
        new, shown = buffer.places(keys.shape[2])
        all_keys, all_values = np.asarray(buffer.keys), np.asarray(buffer.values)
        all_keys[:, :, new], all_values[:, :, new] = keys, values
        cache = buffer.keys[:, :, shown], buffer.values[:, :, shown]
        return all_keys[:, :, shown], all_values[:, :, shown], cache

    cache = mx.array(keys), mx.array(values)
    if past is not None:
        cache = past.update(*cache)
    return np.asarray(cache[0]), np.asarray(cache[1]), cache


def _turned(x: Floats, cosine: mx.array, sine: mx.array) -> Floats:
    """Rotate [B, T, heads, D], as `rotary` does; the tables are [1 or B, 1, T, D]."""
    cos, sin = (np.asarray(table).transpose(0, 2, 1, 3) for table in (cosine, sine))
    half = x.shape[-1] // 2
    turned: Floats = x * cos
    turned[..., :half] += x[..., half:] * sin[..., :half]
    turned[..., half:] += x[..., :half] * sin[..., half:]
    return turned
