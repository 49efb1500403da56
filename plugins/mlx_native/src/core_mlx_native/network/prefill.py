"""Running complete prompts: one padded, masked forward pass without a cache object.

`prefill` uses the defining mask (`masks`), for `inspect_attention` and the tests. `read` is the
fast version for `classify` and `score`, which read only a few positions: rows are padded on the
right, so a causal mask is enough to hide the padding.

Shapes: B rows, T tokens of the longest row after the prefix, R positions that are read, H hidden
size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import mlx.core as mx

from core.kit.base import Check, never_stop
from core_mlx_native.chosen import FastPaths
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.masks import additive, prefill_allowed, seen_from
from core_mlx_native.network.rotary import Ends, View
from core_mlx_native.network.values import KeysValues, Mask
from core_runtime.batches import rounded_up


@dataclass(frozen=True, slots=True)
class Prefill:
    """The result of one pass over a ragged batch, padded on the right; ignore padding.

    ``hidden`` [B, T, H] is the output of the last layer for the tokens from ``start`` on, or only
    for each row's ``positions``; ``cache`` contains each layer's keys and values, [B, kv heads,
    size, head size]. ``inputs`` are the inputs of some layers, by index, at ``positions``: [B, R,
    H].
    """

    size: int
    hidden: mx.array
    cache: list[KeysValues]
    start: int = 0
    positions: tuple[tuple[int, ...], ...] | None = None
    inputs: Mapping[int, mx.array] = field(default_factory=dict)

    def hidden_at(self, positions: Sequence[int]) -> mx.array:
        """Return the hidden state of one position per row: [B, H]."""
        index = mx.array(self._columns(positions))[:, None, None]  # [B, 1, 1]
        return mx.take_along_axis(self.hidden, index, axis=1)[:, 0]

    def hidden_of(self, positions: Sequence[Sequence[int]]) -> mx.array:
        """Return the hidden states of any positions, row after row: [N, H]."""
        flat = self.hidden.reshape(-1, self.hidden.shape[-1])  # [B * T, H]
        width = self.hidden.shape[1]
        index = [
            row * width + column
            for row, places in enumerate(positions)
            for column in self._columns_of(row, places)
        ]
        return flat[mx.array(index)]

    def select(self, rows: Sequence[int]) -> Prefill:
        """Return some of the rows, in ascending order. Selecting all of them is free."""
        if len(rows) == len(self.hidden):
            return self
        index = mx.array(list(rows))
        cache = [(keys[index], values[index]) for keys, values in self.cache]
        positions = self.positions and tuple(self.positions[row] for row in rows)
        return Prefill(self.size, self.hidden[index], cache, self.start, positions)

    def _columns(self, positions: Sequence[int]) -> list[int]:
        if self.positions is None:
            return [position - self.start for position in positions]
        return [row.index(at) for row, at in zip(self.positions, positions, strict=True)]

    def _columns_of(self, row: int, positions: Sequence[int]) -> list[int]:
        if self.positions is None:
            return [position - self.start for position in positions]
        columns = {at: column for column, at in enumerate(self.positions[row])}
        return [columns[position] for position in positions]


@dataclass(frozen=True, slots=True)
class Behind:
    """A past for tokens that run once after prefilled prompts, and are not stored.

    The prompts are one row per row of tokens, or one row for all of them.
    """

    keys: mx.array
    values: mx.array

    def update(self, keys: mx.array, values: mx.array) -> KeysValues:
        """Return the prompt's keys and values followed by the new ones."""
        return _appended(self.keys, keys), _appended(self.values, values)


def _appended(past: mx.array, new: mx.array) -> mx.array:
    rows = mx.broadcast_to(past, (len(new), *past.shape[1:]))
    return mx.concatenate([rows, new], axis=2)  # [B, kv heads, S + T, D]


def prefill(
    decoder: Decoder, prompts: Sequence[Sequence[int]], between: Check = never_stop
) -> Prefill:
    """Run token-id prompts, each at least one token long, in one forward pass.

    ``between`` is called between two layers.
    """
    size = max(map(len, prompts))
    padded = mx.array([_padded(prompt, size) for prompt in prompts])  # [B, T]
    lengths = mx.array([len(prompt) for prompt in prompts])  # [B]

    masks: dict[int, mx.array | None] = {
        window: additive(prefill_allowed(lengths, size, window), decoder.dtype)
        for window in windows(decoder)
    }

    hidden, cache = decoder(padded, View(0, masks), between=between)
    return Prefill(size, hidden, cache)


def _padded(ids: Sequence[int], size: int) -> list[int]:
    """Return the tokens, padded on the right.

    The padding repeats the last token: a mask does not hide NaN, which another token's weights may
    have.
    """
    return [*ids, *[ids[-1]] * (size - len(ids))]


def windows(decoder: Decoder) -> set[int]:
    """Return the distinct window sizes of the layers; 0 is full attention."""
    return {kind.window for kind in decoder.config.layers}


@dataclass(frozen=True, slots=True)
class Prefix:
    """A shared prefix of ``size`` tokens: each layer's keys and values.

    They are [1, kv heads, P, D], of the last P tokens: all of them, except in layers with a window,
    where later tokens do not see the first columns. A pass after the prefix uses it `whole`;
    ``zeros`` counts each layer's columns that are then filled with zeros.
    """

    size: int
    cache: Sequence[KeysValues] = ()
    zeros: Sequence[int] = ()

    def arrays(self) -> list[mx.array]:
        """Return all keys and values."""
        return [array for layer in self.cache for array in layer]

    def cut(self, size: int) -> Prefix:
        """Return the prefix cut to its first ``size`` tokens."""
        if size == self.size:
            return self
        end = size - self.size  # negative: counted from the end, because columns may be missing
        return Prefix(size, [(keys[:, :, :end], values[:, :, :end]) for keys, values in self.cache])

    def whole(self) -> Prefix:
        """Return the prefix with zeros for columns that later tokens do not see."""
        zeros = [self.size - keys.shape[2] for keys, _ in self.cache]
        if not any(zeros):
            return self
        cache = [
            (_after_zeros(keys, count), _after_zeros(values, count))
            for (keys, values), count in zip(self.cache, zeros, strict=True)
        ]
        return Prefix(self.size, cache, zeros)

    def known(self, cache: Sequence[KeysValues]) -> Sequence[KeysValues]:
        """Return the columns of a pass that ran after this prefix, without the zeros."""
        if not any(self.zeros):
            return cache
        return [
            (keys[:, :, count:], values[:, :, count:])
            for (keys, values), count in zip(cache, self.zeros, strict=True)
        ]


def _after_zeros(columns: mx.array, count: int) -> mx.array:
    return mx.pad(columns, [(0, 0), (0, 0), (count, 0), (0, 0)])


NO_PREFIX = Prefix(0)


def run_prefix(
    decoder: Decoder,
    ids: Sequence[int],
    fast: FastPaths,
    between: Check = never_stop,
    before: Prefix = NO_PREFIX,
) -> Prefix:
    """Compute the keys and values of a prefix, after its cached part, if any."""
    end = [[len(ids) - 1]]
    cache = read(decoder, [ids], end, before, fast, 1, between).cache
    decoder.ops.begin([array for layer in cache for array in layer])
    return Prefix(len(ids), cache)


def read(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
    prefix: Prefix,
    fast: FastPaths,
    length_step: int = 1,
    between: Check = never_stop,
    *,
    keep: bool = True,
    batch_size: int = 0,
    inputs: Sequence[int] = (),
    depth: int | None = None,
) -> Prefill:
    """Run complete prompts after their ``prefix``; read hidden states at ``positions`` [B][R].

    Every prompt is longer than the prefix, and its positions come after it. Rows are padded to a
    multiple of ``length_step``; ``between`` is called between two layers. ``keep``: with the keys
    and values. ``batch_size``: minimum of rows to run; missing rows are empty, and omitted from the
    result. ``inputs``: layers whose inputs are returned too; ``depth``: number of layers to run, by
    default all.
    """
    # The tokens after the prefix, padded to one length.
    rows = [prompt[prefix.size :] for prompt in prompts]
    empty = max(0, batch_size - len(rows))
    length = rounded_up(max(map(len, rows)), length_step)
    size = prefix.size + length
    padded = [_padded(row, length) for row in rows]
    tokens = mx.array(padded + [[0] * length] * empty)  # [B, T]

    # Tokens see all earlier ones; the last layer may run only for those that are read.
    every = mx.arange(prefix.size, size)[None]  # [1, T]
    view = View(prefix.size, causal_masks(decoder, every, size, whole=True))
    ends = None
    places = [list(row) for row in positions]
    columns = mx.array(places + places[-1:] * empty)  # [B, R]
    if fast.last_layer:
        ends = Ends(columns - prefix.size, View(columns, causal_masks(decoder, columns, size)))

    # Of a layer's input, only the read positions are kept.
    layer_inputs: dict[int, mx.array] = {}

    def look(index: int, x: mx.array) -> None:
        if index in inputs:
            read = mx.take_along_axis(x, (columns - prefix.size)[:, :, None], axis=1)
            layer_inputs[index] = read[: len(rows)]

    # Run them after the prefix.
    past = [Behind(*layer) for layer in prefix.cache] or None
    hidden, cache = decoder(tokens, view, past, ends, between, look, depth)
    if empty:
        hidden = hidden[: len(rows)]
        cache = [(keys[: len(rows)], values[: len(rows)]) for keys, values in cache]
    read_positions = tuple(map(tuple, positions)) if fast.last_layer else None
    return Prefill(size, hidden, cache if keep else [], prefix.size, read_positions, layer_inputs)


def causal_masks(
    decoder: Decoder, positions: mx.array, size: int, *, whole: bool = False
) -> dict[int, Mask]:
    """Return each window's mask, for tokens at ``positions`` [1 or B, T] over ``size`` columns.

    ``whole``: for all tokens, a mask for which GPUs have kernels.
    """
    return {window: _mask(decoder, positions, size, window, whole) for window in windows(decoder)}


def _mask(decoder: Decoder, positions: mx.array, size: int, window: int, whole: bool) -> Mask:
    hides = 0 < window < size
    capped = decoder.config.attention_cap is not None
    by_name = decoder.ops.has_causal_kernel and decoder.ops.fuses(
        decoder.config.head_dim, positions.shape[1]
    )
    if whole and by_name and not (hides or capped):
        return "causal"
    return additive(seen_from(positions, size, window if hides else 0), decoder.dtype)
