"""The small parts of a decoder, built straight from checkpoint tensors."""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx
from mlx import nn

Weights = Mapping[str, mx.array]


class Linear(nn.Module):
    """``x @ weight.T + bias``; weight ``(out, in)``."""

    def __init__(self, weights: Weights, name: str) -> None:
        super().__init__()
        self.weight = weights[f"{name}.weight"]
        if f"{name}.bias" in weights:
            self.bias = weights[f"{name}.bias"]

    def __call__(self, x: mx.array) -> mx.array:
        y = x @ self.weight.T
        return y + self.bias if "bias" in self else y


class RMSNorm(nn.Module):
    """Root-mean-square norm (arXiv 1910.07467); Gemma's +1 is folded into ``weight`` at load."""

    def __init__(self, weight: mx.array, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = weight, eps

    def __call__(self, x: mx.array) -> mx.array:
        return mx.fast.rms_norm(x, self.weight, self.eps)


def silu(x: mx.array) -> mx.array:
    """x * sigmoid(x)."""
    return x * mx.sigmoid(x)


def gelu_tanh(x: mx.array) -> mx.array:
    """The tanh approximation of GELU (arXiv 1606.08415): PyTorch's ``approximate="tanh"``."""
    return 0.5 * x * (1 + mx.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


# mlx.nn's own activations are mx.compile'd, which on CPU starts a C++ compiler at run time.
ACTIVATIONS = {"silu": silu, "gelu_tanh": gelu_tanh}


def rotate(x: mx.array, positions: int | mx.array, periods: mx.array) -> mx.array:
    """Apply rope to ``x`` [B, H, T, D].

    ``positions`` is where the first token stands: one number, one per row [B], or one per token
    [B, T] when tokens do not follow one another.
    """
    if isinstance(positions, mx.array) and positions.ndim == 2:
        return _rotate_each(x, positions, periods)
    return mx.fast.rope(
        x, x.shape[-1], traditional=False, base=None, scale=1.0, offset=positions, freqs=periods
    )


def _rotate_each(x: mx.array, positions: mx.array, periods: mx.array) -> mx.array:
    batch, heads, length, dim = x.shape
    alone = x.transpose(0, 2, 1, 3).reshape(batch * length, heads, 1, dim)  # [B*T, H, 1, D]
    turned = rotate(alone, positions.reshape(-1), periods)
    return turned.reshape(batch, length, heads, dim).transpose(0, 2, 1, 3)  # [B, H, T, D]
