"""The keys and values of the rows that decode together.

Every layer has one buffer, in which all rows end in the same column: row b's tokens are the columns
``[end - length[b], end)``, and the columns left of them are padding. A decode step then writes one
column, the same for all rows. When the buffer is full, the columns still visible move into a new
one: so it grows, drops columns outside a window, and loses the padding of removed rows. Nothing is
evaluated here; each later forward pass evaluates what it writes.

A column is written in place only if nothing else references the buffer; otherwise MLX copies all of
it. So keep no view returned by `LayerCache.update` or passed on by the decoder. (A pass in flight
references the views of the few operations queued on CPU: a model of four layers whose next pass is
queued early copies nothing; a single attention, repeated, does.)

Shapes: B rows, T tokens of a pass, S columns that it sees, D head size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import mlx.core as mx

from core_mlx_native.decode.columns import Columns
from core_mlx_native.network.prefill import Prefix
from core_mlx_native.network.rotary import View
from core_mlx_native.network.values import KeysValues

CHUNK = 256  # columns by which buffers grow, as in mlx-lm


class LayerCache:
    """The keys and values of one layer, each [B, kv heads, capacity, D]: a `values.Past`."""

    def __init__(self, columns: Columns, keys: mx.array, values: mx.array) -> None:
        self.columns, self.keys, self.values = columns, keys, values

    def update(self, keys: mx.array, values: mx.array) -> KeysValues:
        """Store [B, kv heads, T, D] of the running pass; return all it sees, with S columns."""
        new, shown = self.places(keys.shape[2])
        self.keys[:, :, new], self.values[:, :, new] = keys, values
        return self.keys[:, :, shown], self.values[:, :, shown]

    def places(self, size: int) -> tuple[slice, slice]:
        """Return the columns of the running pass over ``size`` tokens, and of all that it sees."""
        end = self.columns.end
        return slice(end - size, end), slice(self.columns.start, end)

    def last(self, count: int, rows: slice = slice(None)) -> KeysValues:
        """Return the last ``count`` columns of some rows: [rows, kv heads, count, D]."""
        part = slice(self.columns.end - count, self.columns.end)
        return self.keys[rows, :, part], self.values[rows, :, part]

    def lay_out(self, parts: Iterable[KeysValues], end: int, capacity: int) -> None:
        """Build new buffers with the rows of all parts in order, ending at ``end``."""
        keys, values = zip(*parts, strict=True)
        self.keys = _laid_out(keys, end, capacity)
        self.values = _laid_out(values, end, capacity)

    def overwrite(self, row: int, keys: mx.array, values: mx.array) -> None:
        """Overwrite a row's last n columns with [1, kv heads, n, D], and zero those before.

        The old values may be NaN or infinite, which a mask does not hide: -inf + NaN is NaN.
        """
        first = self.columns.end - keys.shape[2]
        before, part = slice(self.columns.start, first), slice(first, self.columns.end)
        for buffer, new in ((self.keys, keys), (self.values, values)):
            buffer[row : row + 1, :, before] = 0
            buffer[row : row + 1, :, part] = new


def _laid_out(parts: Sequence[mx.array], end: int, capacity: int) -> mx.array:
    """Return [sum of rows, kv heads, capacity, D] from parts [rows, kv heads, n, D] and zeros."""
    heads, dim = parts[0].shape[1], parts[0].shape[3]
    buffer = mx.zeros((sum(map(len, parts)), heads, capacity, dim), parts[0].dtype)
    row = 0
    for part in parts:
        buffer[row : row + len(part), :, end - part.shape[2] : end] = part
        row += len(part)
    return buffer


@dataclass(frozen=True, slots=True)
class CacheShape:
    """The dimensions of a cache.

    ``windows[i]`` is the number of positions that layer i sees (0 = all); ``limit`` is an upper
    bound for all layers, for a sliding context. Buffers grow by ``chunk`` columns. ``anchored``:
    see `Columns`. With a window, ``spare`` columns before it are kept, so that this many tokens at
    a row's end can be undone.
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
        """Return the empty columns of the layers with ``window``."""
        bounds = [bound for bound in (window, self.limit) if bound]
        return Columns(min(bounds, default=0), self.chunk, self.anchored, spare=self.spare)


class BatchCache:
    """The cache of a batch whose rows have individual lengths.

    A forward pass is ``decoder(tokens, cache.begin(T), cache.layers)``. A pass that fails leaves
    the cache unusable.
    """

    def __init__(self, shape: CacheShape, rows: int = 0) -> None:
        self.shape = shape
        self._lengths = [0] * rows
        # Per row and window, the position of its first column, if it began after a prefix.
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
        """Return all buffers, to evaluate after a pass whose hidden states are not read."""
        return [array for layer in self.layers for array in (layer.keys, layer.values)]

    @property
    def nbytes(self) -> int:
        """The bytes of all buffers, evaluated or not."""
        return sum(array.nbytes for array in self.arrays())

    def length(self, row: int) -> int:
        """Return the number of tokens in a row."""
        return self._lengths[row]

    def columns_of(self, row: int) -> list[KeysValues]:
        """Return each layer's columns [1, kv heads, n, D] needed by later tokens, and the spare
        ones.

        These are views: copy them, evaluate the copies, and drop the views.
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
        """Start the rows of an empty cache with copies of these, one per row."""
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
        """Reserve ``size`` columns for a forward pass over [B, size] tokens, and return their
        `View`.

        The last ``real[b]`` tokens of row b are real (by default all). The others are padding
        before the row's first token: prompts of different lengths that run in chunks are padded on
        the left, so that all end together and nothing has to be moved. Raises ValueError for
        padding after a row's tokens, and without rows.
        """
        lengths = self._grown(size, real)

        # A full buffer moves its visible columns into a new one.
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
        """Keep these rows, in this order; a repeated row is copied."""
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
        """Append the rows of another cache of the same shape, which is not changed."""
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
        """Replace these finished rows by another cache's rows.

        Cheaper than `keep` and `merge`: only the new rows are copied, unless they are longer than
        all written columns.
        """
        for row, length, firsts in zip(rows, other._lengths, other._firsts, strict=True):
            self._lengths[row], self._firsts[row] = length, firsts

        # A new row longer than all written columns needs room first.
        for window, columns in self._columns.items():
            theirs = other._needed(other._columns[window])
            if theirs > columns.end:
                self._move(columns, columns.end, theirs, columns.roomy(theirs))

        # Then only the new rows are written.
        for layer, source in zip(self.layers, other.layers, strict=True):
            for i, (row, length) in enumerate(zip(rows, other._lengths, strict=True)):
                count = layer.columns.needed(length)
                layer.overwrite(row, *source.last(count, slice(i, i + 1)))

    def _grown(self, size: int, real: Sequence[int] | None) -> list[int]:
        counts = [size] * self.rows if real is None else list(real)
        if not counts:
            raise ValueError("forward pass over a cache without rows; merge some first")

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

    def _move(self, columns: Columns, count: int, end: int, capacity: int) -> None:
        """Move the last ``count`` columns, so that they end at ``end``."""
        for layer in self.layers:
            if layer.columns is columns:
                layer.lay_out([layer.last(count)], end, capacity)
        columns.end, columns.capacity = end, capacity
