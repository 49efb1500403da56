"""The small parts of a decoder, built directly from checkpoint tensors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, repeat

import mlx.core as mx
from mlx import nn

from core_mlx_native.checkpoint.weights import Weights
from core_mlx_native.network.ops import Ops


class Dense(nn.Module):
    """A dense matrix, stored as ``transposed`` [columns, rows]; ``weight`` is a view of it."""

    def __init__(self, transposed: mx.array) -> None:
        super().__init__()
        self.hold(transposed)

    def hold(self, transposed: mx.array) -> None:
        """Set the weight."""
        self.weight = transposed.T
        self.transposed = (
            transposed  # stored: a step has hundreds of products, and each would transpose
        )
        mx.eval(self.weight, self.transposed)

    def product(self, x: mx.array) -> mx.array:
        """See `Matrix`."""
        return x @ self.transposed

    def rows(self, index: mx.array) -> mx.array:
        """See `Matrix`."""
        return self.weight[index]

    def back(self, y: mx.array) -> mx.array:
        """See `Matrix`."""
        return y @ self.weight

    def dense(self) -> mx.array:
        """Return the weight itself: [rows, columns]."""
        return self.weight

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.weight.shape
        return rows, columns


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

    def back(self, y: mx.array) -> mx.array:
        """See `Matrix`."""
        packed = self.weight, self.scales, self.biases
        return mx.quantized_matmul(
            y, *packed, transpose=False, group_size=self._group_size, bits=self._bits
        )

    def dense(self) -> mx.array:
        """Return the dequantised weight: [rows, columns]."""
        return mx.dequantize(self.weight, self.scales, self.biases, self._group_size, self._bits)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, groups = self.scales.shape
        return rows, groups * self._group_size


def matrix(weights: Weights, name: str) -> Dense | Packed:
    """Return the matrix ``name.weight``, dense or quantised as in the weights."""
    if name in weights.packings:
        return Packed(weights, name)
    return Dense(weights.take(f"{name}.weight").T)


class Linear(nn.Module):
    """``x @ weight.T + bias``; weight ``(out, in)``."""

    def __init__(self, weights: Weights, name: str, ops: Ops) -> None:
        super().__init__()
        self.matrix = matrix(weights, name)
        if isinstance(self.matrix, Dense):
            self.matrix.hold(ops.laid_out(self.matrix.weight))
        self._ops = ops
        if f"{name}.bias" in weights.names:
            self.bias = weights.take(f"{name}.bias")

    def __call__(self, x: mx.array) -> mx.array:
        y = self._ops.settled(self.matrix.product(x))
        return y + self.bias if "bias" in self else y


class Linears(nn.Module):
    """Several linear maps, of a common input or one input each, as a tuple.

    ``together``: if wide weights are laid out, one product computes all maps, and the results are
    views of it; otherwise the results are contiguous.
    """

    def __init__(self, weights: Weights, names: Sequence[str], ops: Ops, *, together: bool) -> None:
        super().__init__()
        self.maps = [Linear(weights, name, ops) for name in names]
        self._ops = ops
        matrices = [linear.matrix for linear in self.maps]
        dense = [matrix for matrix in matrices if isinstance(matrix, Dense)]
        if len(dense) == len(matrices) and (together or not ops.lays_out_wide):
            self._stack(dense)

    def __call__(self, x: mx.array, *others: mx.array) -> tuple[mx.array, ...]:
        if others:
            return tuple(map(Linear.__call__, self.maps, (x, *others)))
        is_token = x.size == x.shape[-1]
        if "stacked" not in self or not (is_token or self._ops.lays_out_wide):
            return tuple(map(Linear.__call__, self.maps, repeat(x)))

        # A product that reads one large matrix is faster on a CPU than several.
        whole = self._ops.settled(x @ self.stacked)
        return tuple(
            part + linear.bias if "bias" in linear else part
            for part, linear in zip(mx.split(whole, self._bounds, -1), self.maps, strict=True)
        )

    def _stack(self, matrices: Sequence[Dense]) -> None:
        """Move the matrices into one buffer; each becomes a view of it."""
        ends = list(accumulate(len(matrix.weight) for matrix in matrices))
        whole = self._ops.laid_out(mx.concatenate([matrix.weight for matrix in matrices]))
        mx.eval(whole)
        for matrix, start, end in zip(matrices, [0, *ends], ends, strict=False):
            matrix.hold(whole[:, start:end])
        self.stacked, self._bounds = whole, ends[:-1]


class RMSNorm(nn.Module):
    """Root-mean-square norm (arXiv 1910.07467); Gemma's +1 is folded into ``weight`` at load."""

    def __init__(self, weights: Weights, name: str, eps: float, ops: Ops) -> None:
        super().__init__()
        self.weight, self.eps = weights.take(f"{name}.weight"), eps
        self._ops = ops

    def __call__(self, x: mx.array, dtype: mx.Dtype | None = None) -> mx.array:
        """Return the norm of ``x``, in ``dtype`` or in that of the weights."""
        wide = x if dtype is None else x.astype(dtype)
        normed = mx.fast.rms_norm(wide, self.weight, self.eps)
        return self._ops.settled(normed.astype(dtype or self.weight.dtype))
