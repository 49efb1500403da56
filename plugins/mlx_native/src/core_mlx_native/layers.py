"""The small parts of a decoder, built straight from checkpoint tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import Protocol

import mlx.core as mx
from mlx import nn

from core_mlx_native.host import on_cpu
from core_mlx_native.lanes import settled
from core_mlx_native.weights import Weights


class Matrix(Protocol):
    """A weight (rows, columns), dense or quantised."""

    def product(self, x: mx.array) -> mx.array:
        """``x @ weight.T``: [..., rows], from [..., columns]."""
        ...

    def rows(self, index: mx.array) -> mx.array:
        """Some of the rows: [..., columns], from whole numbers [...]."""
        ...


class Dense(nn.Module):
    """A plain matrix."""

    def __init__(self, weight: mx.array) -> None:
        super().__init__()
        self.hold(weight)

    def hold(self, weight: mx.array) -> None:
        """Take this weight."""
        self.weight = weight
        self._transposed = weight.T  # made once: a step has hundreds of products, each an operation
        mx.eval(weight, self._transposed)  # a view, not a copy

    def product(self, x: mx.array) -> mx.array:
        """See `Matrix`."""
        return x @ self._transposed

    def rows(self, index: mx.array) -> mx.array:
        """See `Matrix`."""
        return self.weight[index]


class Packed(nn.Module):
    """A matrix in MLX's affine quantisation."""

    def __init__(self, weights: Weights, name: str) -> None:
        super().__init__()
        self.weight, self.scales, self.biases = weights.take_packed(name)
        self._bits = weights.packings[name].bits
        self._group_size = weights.packings[name].group_size

    def product(self, x: mx.array) -> mx.array:
        """See `Matrix`."""
        return mx.quantized_matmul(
            x,
            self.weight,
            self.scales,
            self.biases,
            transpose=True,
            group_size=self._group_size,
            bits=self._bits,
        )

    def rows(self, index: mx.array) -> mx.array:
        """See `Matrix`."""
        return mx.dequantize(
            self.weight[index],
            self.scales[index],
            self.biases[index],
            self._group_size,
            self._bits,
        )


def matrix(weights: Weights, name: str) -> Dense | Packed:
    """The matrix ``name.weight``, as the weights hold it."""
    if name in weights.packings:
        return Packed(weights, name)
    return Dense(weights.take(f"{name}.weight"))


class Linear(nn.Module):
    """``x @ weight.T + bias``; weight ``(out, in)``."""

    def __init__(self, weights: Weights, name: str) -> None:
        super().__init__()
        self.matrix = matrix(weights, name)
        if f"{name}.bias" in weights.names:
            self.bias = weights.take(f"{name}.bias")

    def __call__(self, x: mx.array) -> mx.array:
        y = settled(self.matrix.product(x))
        return y + self.bias if "bias" in self else y


class Linears(nn.Module):
    """Several linear maps of one input, as a tuple."""

    def __init__(self, weights: Weights, names: Sequence[str]) -> None:
        super().__init__()
        self.each = [Linear(weights, name) for name in names]
        matrices = [linear.matrix for linear in self.each]
        dense = [found for found in matrices if isinstance(found, Dense)]
        if len(dense) == len(matrices):
            self._stack(dense)

    def __call__(self, x: mx.array) -> tuple[mx.array, ...]:
        if "_stacked" not in self or x.size > x.shape[-1]:
            return tuple(linear(x) for linear in self.each)
        # One token: a product that reads one large matrix is a fifth faster on CPU than several.
        parts = mx.split(x @ self._stacked, self._bounds, axis=-1)
        return tuple(
            part + linear.bias if "bias" in linear else part
            for part, linear in zip(parts, self.each, strict=True)
        )

    def part(self, index: int, x: mx.array) -> mx.array:
        """One of the maps alone."""
        return self.each[index](x)

    def _stack(self, matrices: Sequence[Dense]) -> None:
        """Move the matrices into one buffer, of which each becomes a view."""
        ends = list(accumulate(len(matrix.weight) for matrix in matrices))
        whole = mx.concatenate([matrix.weight for matrix in matrices])
        mx.eval(whole)
        for matrix, start, end in zip(matrices, [0, *ends], ends, strict=False):
            matrix.hold(whole[start:end])
        self._stacked, self._bounds = whole.T, ends[:-1]
        mx.eval(self._stacked)


class RMSNorm(nn.Module):
    """Root-mean-square norm (arXiv 1910.07467); Gemma's +1 is folded into ``weight`` at load."""

    def __init__(self, weights: Weights, name: str, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = weights.take(f"{name}.weight"), eps

    def __call__(self, x: mx.array, dtype: mx.Dtype | None = None) -> mx.array:
        """``x`` normed, in ``dtype``, or in that of the weights."""
        wide = x if dtype is None else x.astype(dtype)
        normed = mx.fast.rms_norm(wide, self.weight, self.eps)
        return settled(normed.astype(dtype or self.weight.dtype))


def silu(x: mx.array) -> mx.array:
    """x * sigmoid(x)."""
    return x * mx.sigmoid(x)


def gelu_tanh(x: mx.array) -> mx.array:
    """The tanh approximation of GELU (arXiv 1606.08415): PyTorch's ``approximate="tanh"``."""
    return 0.5 * x * (1 + mx.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


ACTIVATIONS = {"silu": silu, "gelu_tanh": gelu_tanh}


def gated(activation: str, gate: mx.array, up: mx.array) -> mx.array:
    """``activation(gate) * up``, of any shape.

    On a GPU one kernel: ten, each over the whole width of the MLP, move as many bytes as would take
    the time of the matrix products. On CPU mx.compile starts a C++ compiler at run time.
    """
    return ACTIVATIONS[activation](gate) * up if on_cpu() else _fused(activation)(gate, up)


@cache
def _fused(activation: str) -> Callable[[mx.array, mx.array], mx.array]:
    function = ACTIVATIONS[activation]
    return mx.compile(lambda gate, up: function(gate) * up, shapeless=True)


def softcap(x: mx.array, cap: float) -> mx.array:
    """Bound softly to ±cap (arXiv 2408.00118, section 2)."""
    return mx.tanh(x / cap) * cap
