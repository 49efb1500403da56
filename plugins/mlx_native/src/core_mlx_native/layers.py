"""The small parts of a decoder, built straight from checkpoint tensors."""

from __future__ import annotations

from typing import Protocol

import mlx.core as mx
from mlx import nn

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
        self.weight = weight

    def product(self, x: mx.array) -> mx.array:
        """See `Matrix`."""
        return x @ self.weight.T

    def rows(self, index: mx.array) -> mx.array:
        """See `Matrix`."""
        return self.weight[index]


class Packed(nn.Module):
    """A matrix in MLX's affine quantisation."""

    def __init__(self, weights: Weights, name: str) -> None:
        super().__init__()
        self.weight = weights.arrays[f"{name}.weight"]
        self.scales = weights.arrays[f"{name}.scales"]
        self.biases = weights.arrays[f"{name}.biases"]
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
    return Dense(weights.arrays[f"{name}.weight"])


class Linear(nn.Module):
    """``x @ weight.T + bias``; weight ``(out, in)``."""

    def __init__(self, weights: Weights, name: str) -> None:
        super().__init__()
        self.matrix = matrix(weights, name)
        if f"{name}.bias" in weights.arrays:
            self.bias = weights.arrays[f"{name}.bias"]

    def __call__(self, x: mx.array) -> mx.array:
        y = self.matrix.product(x)
        return y + self.bias if "bias" in self else y


class RMSNorm(nn.Module):
    """Root-mean-square norm (arXiv 1910.07467); Gemma's +1 is folded into ``weight`` at load."""

    def __init__(self, weights: Weights, name: str, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = weights.arrays[f"{name}.weight"], eps

    def __call__(self, x: mx.array, dtype: mx.Dtype | None = None) -> mx.array:
        """``x`` normed, in ``dtype``, or in that of the weights."""
        wide = x if dtype is None else x.astype(dtype)
        normed = mx.fast.rms_norm(wide, self.weight, self.eps)
        return normed.astype(dtype or self.weight.dtype)


def silu(x: mx.array) -> mx.array:
    """x * sigmoid(x)."""
    return x * mx.sigmoid(x)


def gelu_tanh(x: mx.array) -> mx.array:
    """The tanh approximation of GELU (arXiv 1606.08415): PyTorch's ``approximate="tanh"``."""
    return 0.5 * x * (1 + mx.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


# mlx.nn's own activations are mx.compile'd, which on CPU starts a C++ compiler at run time.
ACTIVATIONS = {"silu": silu, "gelu_tanh": gelu_tanh}


def softcap(x: mx.array, cap: float) -> mx.array:
    """Bound softly to ±cap (arXiv 2408.00118, section 2)."""
    return mx.tanh(x / cap) * cap
