"""An embedding that is also the LM head, laid out for products and for single rows.

The LM head of a large vocabulary is the largest weight of a decoding step: a CPU reads it at 14
GB/s as rows, at 23 GB/s transposed. Transposing it at once would need its memory twice during the
load, so blocks of rows are transposed in place.

Shapes: V vocabulary, H hidden size, M rows.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from mlx import nn

from core_mlx_native.cpu.product import Floats, Functions, Product

_ROWS = 4096  # per block: enough for the speed of the complete matrix
_TURNED = 64  # rows that are transposed together, in a core's cache


class BlockMatrix(nn.Module):
    """A `values.Matrix` (V, H) in float32, which takes over the memory of ``weight``."""

    def __init__(self, weight: mx.array, by: Functions) -> None:
        super().__init__()
        rows: Floats = np.asarray(weight)  # [V, H]
        self._vocabulary, self._hidden = rows.shape
        self._flat = rows.reshape(-1)
        self._products = []
        for start in range(0, len(rows), _ROWS):
            block = rows[start : start + _ROWS]
            self._products.append(Product(_turned(block), by))
        self.blocks = weight.reshape(-1)

    def product(self, x: mx.array) -> mx.array:
        """See `Matrix`: [..., V], from [..., H]; computed at once."""
        vectors = np.ascontiguousarray(np.asarray(x)).reshape(-1, self._hidden)  # [M, H]
        result = mx.zeros((*x.shape[:-1], self._vocabulary))
        logits: Floats = np.asarray(result).reshape(-1, self._vocabulary)
        for start, product in zip(range(0, self._vocabulary, _ROWS), self._products, strict=True):
            product.into(vectors, logits[:, start : start + _ROWS])
        return result

    def rows(self, index: mx.array) -> mx.array:
        """See `Matrix`: [..., H], from integers [...]."""
        block, column = np.divmod(np.asarray(index).astype(np.int64)[..., None], _ROWS)
        width = np.minimum(_ROWS, self._vocabulary - block * _ROWS)
        places = block * (_ROWS * self._hidden) + column + width * np.arange(self._hidden)
        return mx.array(self._flat[places])

    def back(self, y: mx.array) -> mx.array:
        """See `Matrix`: [..., H], from [..., V]; computed at once."""
        slopes = np.ascontiguousarray(np.asarray(y)).reshape(-1, self._vocabulary)  # [M, V]
        result = mx.zeros((*y.shape[:-1], self._hidden))
        out: Floats = np.asarray(result).reshape(-1, self._hidden)
        for start, product in zip(range(0, self._vocabulary, _ROWS), self._products, strict=True):
            product.add_back(slopes[:, start : start + _ROWS], out)
        return result

    @property
    def shape(self) -> tuple[int, int]:
        """See `Matrix`."""
        return self._vocabulary, self._hidden


def _turned(block: Floats) -> Floats:
    """Transpose [rows, H] in place: [H, rows]."""
    rows, turned = block.copy(), block.reshape(block.shape[::-1])
    for start in range(0, len(rows), _TURNED):
        turned[:, start : start + _TURNED] = rows[start : start + _TURNED].T
    return turned
