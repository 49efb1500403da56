"""The keys and values of the rows that decode together.

Every layer has one buffer, in which all rows are aligned on the right (see `kv_columns`). When it
is full, what can still be seen moves into a new one: that is how it grows, drops what lies behind
a window, and loses the padding of rows that left. Nothing is evaluated here; each forward pass
that follows evaluates what it writes.

A column is written into the buffer itself as long as nobody else holds that buffer, or MLX copies
it whole. So keep no view that `LayerCache.update` returned, and none that the decoder hands on. (A
pass in flight holds the views of the few operations that are queued on CPU: a model of four layers
whose next pass is queued early copies nothing, a single attention over and over does.)

Shapes: B rows, T tokens of a pass, S columns that it looks at, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from core_mlx_native.attention import KeysValues
from core_mlx_native.kv_columns import CHUNK, Columns
from core_mlx_native.kv_layer import LayerCache
from core_mlx_native.rotation import View


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What a cache is made for.

    ``windows[i]`` is how many positions layer i sees (0 = all); ``limit`` bounds all of them, for
    a context that drops its oldest positions. Buffers grow by ``chunk`` columns.
    """

    windows: tuple[int, ...]
    kv_heads: int
    head_dim: int
    dtype: mx.Dtype
    limit: int = 0
    chunk: int = CHUNK

    def columns(self, window: int) -> Columns:
        """Where the layers with ``window`` start."""
        bounds = [bound for bound in (window, self.limit) if bound]
        return Columns(min(bounds, default=0), self.chunk)


class BatchCache:
    """The cache of a batch whose rows have lengths of their own.

    A forward pass is ``decoder(tokens, cache.begin(T), cache.layers)``. A pass that fails leaves
    the cache unusable.
    """

    def __init__(self, shape: CacheShape, rows: int = 0) -> None:
        self.shape = shape
        self._lengths = [0] * rows
        self._columns = {window: shape.columns(window) for window in dict.fromkeys(shape.windows)}
        empty = (rows, shape.kv_heads, 0, shape.head_dim)
        self.layers = [
            LayerCache(
                self._columns[window], mx.zeros(empty, shape.dtype), mx.zeros(empty, shape.dtype)
            )
            for window in shape.windows
        ]

    @property
    def rows(self) -> int:
        """How many rows there are: B."""
        return len(self._lengths)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens that each row has seen, dropped ones included: its next token's position."""
        return tuple(self._lengths)

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers, once evaluated."""
        return sum(array.nbytes for array in self.arrays())

    def arrays(self) -> list[mx.array]:
        """All buffers, to evaluate after a pass whose hidden states nobody reads."""
        return [array for layer in self.layers for array in (layer.keys, layer.values)]

    def begin(self, size: int = 1, real: Sequence[int] | None = None) -> View:
        """Take ``size`` columns for a forward pass over [B, size] tokens: where those stand.

        Of row b's tokens the last ``real[b]`` count (all of them by default). The others are
        padding, which stands left of a row's first token: prompts of several lengths that run in
        chunks are padded on the left, so that all end together and nothing has to be moved.
        Raises ValueError for padding behind a row's tokens, and without rows.
        """
        lengths = self._grown(size, real)
        for columns in self._columns.values():
            if columns.end + size > columns.capacity:
                needed = self._needed(columns)
                self._move(columns, needed, needed, columns.roomy(needed, size))
            columns.write(size, max(lengths))
        self._lengths = lengths
        masks = {
            window: columns.mask(lengths, size, self.shape.dtype)
            for window, columns in self._columns.items()
        }
        return View(mx.array([length - size for length in lengths]), masks)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order; one that is named twice is copied."""
        if list(rows) == list(range(self.rows)):
            return
        self._lengths = [self._lengths[row] for row in rows]
        for columns in self._columns.values():
            self._shrink(columns)
        index = mx.array(list(rows), mx.int32)
        for layer in self.layers:
            layer.keys, layer.values = layer.keys[index], layer.values[index]

    def clone(self, row: int, count: int) -> None:
        """Append ``count`` copies of a row."""
        self.keep([*range(self.rows), *[row] * count])

    def prefilled(self, cache: Sequence[KeysValues], lengths: Sequence[int]) -> BatchCache:
        """Prompts that ran elsewhere, in a cache of their own of this one's shape.

        ``cache`` has each layer's keys and values, [B', kv heads, T, D], padded on the right.
        """
        other = BatchCache(self.shape)
        other._lengths = list(lengths)
        for columns in other._columns.values():
            columns.end = columns.needed(max(lengths, default=0))
            columns.capacity = columns.roomy(columns.end)
        for layer, (keys, values) in zip(other.layers, cache, strict=True):
            columns = layer.columns
            ends = [slice(length - columns.needed(length), length) for length in lengths]
            parts = [
                (keys[row : row + 1, :, end], values[row : row + 1, :, end])
                for row, end in enumerate(ends)
            ]
            layer.lay_out(parts, columns.end, columns.capacity)
        return other

    def join(self, cache: Sequence[KeysValues], lengths: Sequence[int]) -> None:
        """Append prompts that ran elsewhere, as `prefilled` takes them."""
        self.merge(self.prefilled(cache, lengths))

    def merge(self, other: BatchCache) -> None:
        """Append the rows of another cache of the same shape, which stays as it is."""
        for window, columns in self._columns.items():
            mine, theirs = self._needed(columns), other._needed(other._columns[window])
            end = max(mine, theirs)
            capacity = columns.roomy(end)
            for layer, source in zip(self.layers, other.layers, strict=True):
                if layer.columns is columns:
                    layer.lay_out([layer.last(mine), source.last(theirs)], end, capacity)
            columns.end, columns.capacity = end, capacity
        self._lengths += other._lengths

    def replace(self, rows: Sequence[int], other: BatchCache) -> None:
        """Put another cache's rows in the place of these, which have finished.

        Cheaper than `keep` and `merge`: only the new rows are copied, unless they are longer than
        all that has been written so far.
        """
        for row, length in zip(rows, other._lengths, strict=True):
            self._lengths[row] = length
        for window, columns in self._columns.items():
            theirs = other._needed(other._columns[window])
            if theirs > columns.end:
                self._move(columns, columns.end, theirs, columns.roomy(theirs))
        for layer, source in zip(self.layers, other.layers, strict=True):
            for i, (row, length) in enumerate(zip(rows, other._lengths, strict=True)):
                count = layer.columns.needed(length)
                layer.overwrite(row, *source.last(count, slice(i, i + 1)))

    def _grown(self, size: int, real: Sequence[int] | None) -> list[int]:
        counts = [size] * self.rows if real is None else list(real)
        if not counts:
            raise ValueError("a forward pass over a cache without rows; merge or join some first")
        for row, (length, count) in enumerate(zip(self._lengths, counts, strict=True)):
            if not 0 <= count <= size or (length and count < size):
                raise ValueError(
                    f"row {row} has {length} tokens and {count} of {size} new ones are real; "
                    "pad only on the left of a row's first token"
                )
        return [length + count for length, count in zip(self._lengths, counts, strict=True)]

    def _needed(self, columns: Columns) -> int:
        return columns.needed(max(self._lengths, default=0))

    def _shrink(self, columns: Columns) -> None:
        needed = self._needed(columns)
        capacity = columns.roomy(needed)
        if capacity < columns.capacity:
            self._move(columns, needed, needed, capacity)

    def _move(self, columns: Columns, kept: int, end: int, capacity: int) -> None:
        """Lay out the last ``kept`` columns anew, so that they end at ``end``."""
        for layer in self.layers:
            if layer.columns is columns:
                layer.lay_out([layer.last(kept)], end, capacity)
        columns.end, columns.capacity = end, capacity
