"""The keys and values of one layer for a batch of rows, in one buffer each.

Shapes: B rows, T tokens of a pass, S columns that it looks at, D head size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import mlx.core as mx

from core_mlx_native.attention import KeysValues
from core_mlx_native.kv_columns import Columns


class LayerCache:
    """One layer's keys and values, each [B, kv heads, capacity, D] (an `attention.Past`)."""

    def __init__(self, columns: Columns, keys: mx.array, values: mx.array) -> None:
        self.columns, self.keys, self.values = columns, keys, values

    def update(self, keys: mx.array, values: mx.array) -> KeysValues:
        """Store [B, kv heads, T, D] for the pass begun; what it looks at [B, kv heads, S, D]."""
        shown = slice(self.columns.start, self.columns.end)
        new = slice(self.columns.end - keys.shape[2], self.columns.end)
        self.keys[:, :, new], self.values[:, :, new] = keys, values
        return self.keys[:, :, shown], self.values[:, :, shown]

    def last(self, count: int, rows: slice = slice(None)) -> KeysValues:
        """The last ``count`` columns of some rows: [rows, kv heads, count, D]."""
        part = slice(self.columns.end - count, self.columns.end)
        return self.keys[rows, :, part], self.values[rows, :, part]

    def lay_out(self, parts: Iterable[KeysValues], end: int, capacity: int) -> None:
        """New buffers, in which the rows of all parts follow one another and end at ``end``."""
        keys, values = zip(*parts, strict=True)
        self.keys = _laid_out(keys, end, capacity)
        self.values = _laid_out(values, end, capacity)

    def overwrite(self, row: int, keys: mx.array, values: mx.array) -> None:
        """Put [1, kv heads, n, D] in the place of a row's last n columns."""
        part = slice(self.columns.end - keys.shape[2], self.columns.end)
        self.keys[row : row + 1, :, part] = keys
        self.values[row : row + 1, :, part] = values


def _laid_out(parts: Sequence[mx.array], end: int, capacity: int) -> mx.array:
    """[sum of rows, kv heads, capacity, D] from parts [rows, kv heads, n, D]; zeros elsewhere."""
    heads, dim = parts[0].shape[1], parts[0].shape[3]
    buffer = mx.zeros((sum(map(len, parts)), heads, capacity, dim), parts[0].dtype)
    row = 0
    for part in parts:
        buffer[row : row + len(part), :, end - part.shape[2] : end] = part
        row += len(part)
    return buffer
