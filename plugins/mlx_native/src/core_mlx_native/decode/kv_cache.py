"""The keys and values of the rows that decode together.

Every layer has one buffer, in which all rows end in the same column: row b's tokens are the columns
``[end - length[b], end)``, and what stands left of them is padding. A decode step then writes one
column, the same for all rows. When the buffer is full, what can still be seen moves into a new one:
that is how it grows, drops what lies behind a window, and loses the padding of rows that left.
Nothing is evaluated here; each forward pass that follows evaluates what it writes.

A column is written into the buffer itself as long as nobody else holds that buffer, or MLX copies
it whole. So keep no view that `LayerCache.update` returned, and none that the decoder hands on. (A
pass in flight holds the views of the few operations that are queued on CPU: a model of four layers
whose next pass is queued early copies nothing, a single attention over and over does.)

Shapes: B rows, T tokens of a pass, S columns that it looks at, D head size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import mlx.core as mx

from core_mlx_native.decode.columns import Columns
from core_mlx_native.network.attention import KeysValues
from core_mlx_native.network.prefill import Prefix
from core_mlx_native.network.rotation import View

CHUNK = 256  # columns by which buffers grow, as in mlx-lm


class LayerCache:
    """The keys and values of one layer, each [B, kv heads, capacity, D]: an `attention.Past`."""

    def __init__(self, columns: Columns, keys: mx.array, values: mx.array) -> None:
        self.columns, self.keys, self.values = columns, keys, values

    def update(self, keys: mx.array, values: mx.array) -> KeysValues:
        """Store [B, kv heads, T, D] of the running pass; return all it sees [B, kv heads, S, D]."""
        new, shown = self.places(keys.shape[2])
        self.keys[:, :, new], self.values[:, :, new] = keys, values
        return self.keys[:, :, shown], self.values[:, :, shown]

    def places(self, size: int) -> tuple[slice, slice]:
        """The columns of the running pass over ``size`` tokens, and all that it sees."""
        end = self.columns.end
        return slice(end - size, end), slice(self.columns.start, end)

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
        """Put [1, kv heads, n, D] in the place of a row's last n columns, and zeros before them.

        What the row held before may be NaN or infinite, which no mask hides: -inf + NaN is NaN.
        """
        first = self.columns.end - keys.shape[2]
        before, part = slice(self.columns.start, first), slice(first, self.columns.end)
        for buffer, new in ((self.keys, keys), (self.values, values)):
            buffer[row : row + 1, :, before] = 0
            buffer[row : row + 1, :, part] = new


def _laid_out(parts: Sequence[mx.array], end: int, capacity: int) -> mx.array:
    """[sum of rows, kv heads, capacity, D] from parts [rows, kv heads, n, D]; zeros elsewhere."""
    heads, dim = parts[0].shape[1], parts[0].shape[3]
    buffer = mx.zeros((sum(map(len, parts)), heads, capacity, dim), parts[0].dtype)
    row = 0
    for part in parts:
        buffer[row : row + len(part), :, end - part.shape[2] : end] = part
        row += len(part)
    return buffer


@dataclass(frozen=True, slots=True)
class CacheShape:
    """The measures that a cache is made for.

    ``windows[i]`` is how many positions layer i sees (0 = all); ``limit`` bounds all of them, for
    a context that drops its oldest positions. Buffers grow by ``chunk`` columns. ``anchored``: see
    `Columns`. With a window, ``spare`` columns in front of it stay: so many tokens of a row's end
    can be taken back.
    """

    windows: tuple[int, ...]
    kv_heads: int
    head_dim: int
    dtype: mx.Dtype
    limit: int = 0
    chunk: int = CHUNK
    anchored: bool = False
    spare: int = 0

    def columns(self, window: int) -> Columns:
        """The empty columns of the layers with ``window``."""
        bounds = [bound for bound in (window, self.limit) if bound]
        return Columns(min(bounds, default=0), self.chunk, self.anchored, spare=self.spare)


class BatchCache:
    """The cache of a batch whose rows have lengths of their own.

    A forward pass is ``decoder(tokens, cache.begin(T), cache.layers)``. A pass that fails leaves
    the cache unusable.
    """

    def __init__(self, shape: CacheShape, rows: int = 0) -> None:
        self.shape = shape
        self._lengths = [0] * rows
        # Of each row and window, the position of its first column, where it began behind a prefix.
        self._firsts: list[dict[int, int]] = [{} for _ in range(rows)]
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
        """The number of rows: B."""
        return len(self._lengths)

    def arrays(self) -> list[mx.array]:
        """All buffers, to evaluate after a pass whose hidden states nobody reads."""
        return [array for layer in self.layers for array in (layer.keys, layer.values)]

    @property
    def nbytes(self) -> int:
        """The bytes of all buffers, evaluated or not."""
        return sum(array.nbytes for array in self.arrays())

    def length(self, row: int) -> int:
        """The number of tokens in a row."""
        return self._lengths[row]

    def columns_of(self, row: int) -> list[KeysValues]:
        """Each layer's columns [1, kv heads, n, D] that a row's later tokens need, and the spare.

        These are views: copy them, evaluate the copies, and let go of the views.
        """
        one, length = slice(row, row + 1), self._lengths[row]
        counts = {
            window: min(columns.needed(length), length - self._firsts[row].get(window, 0))
            for window, columns in self._columns.items()
        }
        return [
            layer.last(counts[window], one)
            for layer, window in zip(self.layers, self.shape.windows, strict=True)
        ]

    def start(self, prefixes: Sequence[Prefix]) -> None:
        """Let the rows of an empty cache begin with these, one for each; they are copied."""
        self._lengths = [prefix.size for prefix in prefixes]
        for columns in self._columns.values():
            columns.end = self._needed(columns)
            columns.capacity = columns.roomy(columns.end)

        for index, (layer, window) in enumerate(zip(self.layers, self.shape.windows, strict=True)):
            parts = []
            for prefix, firsts in zip(prefixes, self._firsts, strict=True):
                keys, values = prefix.cache[index] if prefix.size else (layer.keys[:1],) * 2
                first = max(0, keys.shape[2] - layer.columns.needed(prefix.size))
                parts.append((keys[:, :, first:], values[:, :, first:]))
                firsts[window] = prefix.size - keys.shape[2]
            layer.lay_out(parts, layer.columns.end, layer.columns.capacity)

    def begin(self, size: int = 1, real: Sequence[int] | None = None) -> View:
        """Take ``size`` columns for a forward pass over [B, size] tokens, and return their `View`.

        Of row b's tokens the last ``real[b]`` count (all of them by default). The others are
        padding, which stands left of a row's first token: prompts of several lengths that run in
        chunks are padded on the left, so that all end together and nothing has to be moved.
        Raises ValueError for padding behind a row's tokens, and without rows.
        """
        lengths = self._grown(size, real)

        # A full buffer moves what can still be seen into a new one.
        for columns in self._columns.values():
            if columns.end + size > columns.capacity or columns.astray(lengths, size):
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
        self._firsts = [self._firsts[row] for row in rows]
        for columns in self._columns.values():
            self._shrink(columns)

        index = mx.array(list(rows), mx.int32)
        for layer in self.layers:
            layer.keys, layer.values = layer.keys[index], layer.values[index]

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
        self._firsts += other._firsts

    def replace(self, rows: Sequence[int], other: BatchCache) -> None:
        """Put another cache's rows in the place of these, which have finished.

        Cheaper than `keep` and `merge`: only the new rows are copied, unless they are longer than
        all that has been written so far.
        """
        for row, length, firsts in zip(rows, other._lengths, other._firsts, strict=True):
            self._lengths[row], self._firsts[row] = length, firsts

        # A new row longer than all that was written needs its columns first.
        for window, columns in self._columns.items():
            theirs = other._needed(other._columns[window])
            if theirs > columns.end:
                self._move(columns, columns.end, theirs, columns.roomy(theirs))

        # Behind that, only the new rows are written.
        for layer, source in zip(self.layers, other.layers, strict=True):
            for i, (row, length) in enumerate(zip(rows, other._lengths, strict=True)):
                count = layer.columns.needed(length)
                layer.overwrite(row, *source.last(count, slice(i, i + 1)))

    def _grown(self, size: int, real: Sequence[int] | None) -> list[int]:
        counts = [size] * self.rows if real is None else list(real)
        if not counts:
            raise ValueError("a forward pass over a cache without rows; merge some first")

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
