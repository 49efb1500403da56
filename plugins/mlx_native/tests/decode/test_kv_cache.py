"""The cache of a batch against rows that keep every key and value of theirs in a plain array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_mlx_native.decode.columns import Columns, step_allowed
from core_mlx_native.decode.kv_cache import BatchCache, CacheShape
from core_mlx_native.loaded import load_decoder
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.masks import additive, prefill_allowed
from core_mlx_native.network.prefill import NO_PREFIX, Prefix, prefill
from core_mlx_native.network.rotary import View
from core_mlx_native.network.values import KeysValues
from plugins.mlx_native.tests.network.logits import last_logits

Floats = npt.NDArray[np.float32]
Checkpoint = Callable[..., Path]

WINDOWS = (0, 4, 16, 0, 1)  # of the layers
HEADS, KV_HEADS, DIM = 4, 2, 4
CHUNK = 4
MOST_ROWS = 6
GARBAGE = 1e3  # what padding holds: seen by a token, it drowns everything else


def small_shape(
    limit: int = 0, dtype: mx.Dtype = mx.float32, anchored: bool = False, spare: int = 0
) -> CacheShape:
    return CacheShape(WINDOWS, KV_HEADS, DIM, dtype, limit, CHUNK, anchored, spare)


def prefilled(cache: BatchCache, parts: Sequence[KeysValues], lengths: Sequence[int]) -> BatchCache:
    """Prompts that ran elsewhere, in a cache of their own of this one's shape.

    ``parts`` has each layer's keys and values, [B', kv heads, T, D], padded on the right.
    """
    other = BatchCache(cache.shape, len(lengths))
    other._lengths = list(lengths)
    for columns in other._columns.values():
        columns.end = columns.needed(max(lengths, default=0))
        columns.capacity = columns.roomy(columns.end)
    for layer, (keys, values) in zip(other.layers, parts, strict=True):
        columns = layer.columns
        ends = [slice(length - columns.needed(length), length) for length in lengths]
        rows = [
            (keys[row : row + 1, :, end], values[row : row + 1, :, end])
            for row, end in enumerate(ends)
        ]
        layer.lay_out(rows, columns.end, columns.capacity)
    return other


def join(cache: BatchCache, parts: Sequence[KeysValues], lengths: Sequence[int]) -> None:
    cache.merge(prefilled(cache, parts, lengths))


def nbytes(cache: BatchCache) -> int:
    """Bytes of all buffers, once evaluated."""
    return sum(array.nbytes for array in cache.arrays())


class Twin:
    """A cache and, beside it, each row's own columns: [layers, 2, kv heads, length, D]."""

    def __init__(self, shape: CacheShape, random: np.random.Generator, rows: int = 0) -> None:
        self.shape, self.random = shape, random
        self.cache = BatchCache(shape, rows)
        self.rows = [self.columns(0) for _ in range(rows)]

    def columns(self, count: int) -> Floats:
        return self.normal(len(self.shape.windows), 2, KV_HEADS, count, DIM)

    def normal(self, *size: int) -> Floats:
        drawn: Floats = self.random.standard_normal(size, np.float32)
        return drawn

    def step(self, size: int = 1, real: Sequence[int] | None = None) -> None:
        """One pass, after which every token of every row must have seen what it should."""
        counts = [size] * len(self.rows) if real is None else real
        fresh = [self.columns(size) for _ in self.rows]
        for columns, count in zip(fresh, counts, strict=True):
            columns[..., : size - count, :] = GARBAGE
        view = self.cache.begin(size, real)
        starts = [row.shape[3] + count - size for row, count in zip(self.rows, counts, strict=True)]
        assert isinstance(view.positions, mx.array)
        assert view.positions.tolist() == starts
        self.rows = [
            np.concatenate([row, columns[..., size - count :, :]], axis=3)
            for row, columns, count in zip(self.rows, fresh, counts, strict=True)
        ]
        for layer in range(len(self.shape.windows)):
            self.check(layer, np.stack(fresh), view, size, counts)

    def check(
        self, layer: int, fresh: Floats, view: View, size: int, counts: Sequence[int]
    ) -> None:
        queries = self.normal(len(self.rows), HEADS, size, DIM)
        new = (mx.array(fresh[:, layer, 0]), mx.array(fresh[:, layer, 1]))
        keys, values = self.cache.layers[layer].update(*new)
        mask = view.masks[self.shape.windows[layer]]
        start = self.cache.layers[layer].columns.start
        assert not (self.shape.anchored and start > 0 and mask is None)
        mixed = np.array(
            mx.fast.scaled_dot_product_attention(
                mx.array(queries), keys, values, scale=1.0, mask=mask
            )
        )
        assert np.isfinite(mixed).all()
        for b, (row, count) in enumerate(zip(self.rows, counts, strict=True)):
            for t in range(size - count, size):
                wanted = self.attended(row[layer], queries[b, :, t], layer, size - 1 - t)
                np.testing.assert_allclose(mixed[b, :, t], wanted, rtol=1e-4, atol=1e-5)

    def spoil(self, row: int) -> None:
        """Fill a row's own columns with NaN, as a row is that has broken: no mask hides it."""
        for layer in self.cache.layers:
            end = layer.columns.end
            own = slice(max(0, end - self.rows[row].shape[3]), end)
            for buffer in (layer.keys, layer.values):
                buffer[row : row + 1, :, own] = np.nan

    def attended(self, row: Floats, query: Floats, layer: int, behind: int) -> Floats:
        """What a query sees that stands ``behind`` tokens before its row's last: [heads, D]."""
        bounds = [bound for bound in (self.shape.windows[layer], self.shape.limit) if bound]
        stop = row.shape[2] - behind
        start = max(0, stop - min(bounds)) if bounds else 0
        keys, values = np.repeat(row[:, :, start:stop], HEADS // KV_HEADS, axis=1)
        scores = np.exp(np.einsum("hd,hsd->hs", query, keys))
        shares = scores / scores.sum(axis=-1, keepdims=True)
        mixed: Floats = np.einsum("hs,hsd->hd", shares, values)
        return mixed

    def prompts(self, lengths: Sequence[int]) -> tuple[list[Floats], list[KeysValues]]:
        """Rows of these lengths, and the same as a prefill leaves them: padded on the right."""
        rows = [self.columns(length) for length in lengths]
        size = max(lengths)
        padded = np.full((len(rows), *self.columns(size).shape), GARBAGE, np.float32)
        for b, row in enumerate(rows):
            padded[b, ..., : row.shape[3], :] = row
        layers = range(len(self.shape.windows))
        return rows, [(mx.array(padded[:, i, 0]), mx.array(padded[:, i, 1])) for i in layers]

    def join(self, lengths: Sequence[int]) -> None:
        rows, cache = self.prompts(lengths)
        join(self.cache, cache, lengths)
        self.rows += rows

    def keep(self, rows: Sequence[int]) -> None:
        self.cache.keep(rows)
        self.rows = [self.rows[row] for row in rows]

    def clone(self, row: int, count: int) -> None:
        self.cache.keep([*range(self.cache.rows), *[row] * count])
        self.rows += [self.rows[row]] * count

    def replace(self, rows: Sequence[int], lengths: Sequence[int]) -> None:
        new, cache = self.prompts(lengths)
        for row in rows:
            self.spoil(row)
        self.cache.replace(rows, prefilled(self.cache, cache, lengths))
        for row, columns in zip(rows, new, strict=True):
            self.rows[row] = columns

    def in_chunks(self, lengths: Sequence[int], size: int) -> Twin:
        """Prompts that run chunk by chunk, padded on the left, in a cache of their own."""
        other = Twin(self.shape, self.random, len(lengths))
        total = max(lengths)
        for first in range(0, total, size):
            width = min(size, total - first)
            behind = total - first - width  # columns that are still to come
            other.step(width, [min(width, max(0, length - behind)) for length in lengths])
        return other

    def merge(self, other: Twin) -> None:
        self.cache.merge(other.cache)
        self.rows += other.rows


def chunked(twin: Twin, lengths: Sequence[int], size: int) -> None:
    twin.merge(twin.in_chunks(lengths, size))


def refilled(twin: Twin, lengths: Sequence[int], where: int) -> None:
    rows = [(where + i) % len(twin.rows) for i in range(min(len(lengths), len(twin.rows)))]
    twin.replace(rows, lengths[: len(rows)])


def kept(twin: Twin, rows: Sequence[int]) -> None:
    twin.keep([row % len(twin.rows) for row in rows][:MOST_ROWS])


def cloned(twin: Twin, row: int, count: int) -> None:
    twin.clone(row % len(twin.rows), min(count, MOST_ROWS - len(twin.rows)))


def recalled(twin: Twin, row: int, back: int, size: int) -> None:
    """A row that begins as another one did, less its last tokens, and beside it one that is new."""
    source = twin.rows[row % len(twin.rows)]
    length, limit = source.shape[3], twin.shape.limit
    cache = twin.cache.columns_of(row % len(twin.rows))
    for layer, (keys, values) in enumerate(cache):
        count = keys.shape[2]
        assert np.array_equal(np.array([keys[0], values[0]]), source[layer, :, :, length - count :])

    # As short as the columns of every window allow.
    bounds = [min(filter(None, (window, limit)), default=0) for window in twin.shape.windows]
    lost = [length - keys.shape[2] for keys, _ in cache]
    least = (
        max(first + bound - 1 for first, bound in zip(lost, bounds, strict=True) if first)
        if any(lost)
        else 1
    )
    begins = max(least, length - back)
    prefix = Prefix(length, [(mx.array(np.array(k)), mx.array(np.array(v))) for k, v in cache])

    other = Twin(twin.shape, twin.random, 2)
    other.cache.start([prefix.cut(begins), NO_PREFIX])
    other.rows[0] = source[..., :begins, :]
    other.step(size, [size, 1 + size // 2])
    twin.merge(other)


def stepped(twin: Twin, count: int) -> None:
    for _ in range(count):
        twin.step()


Change = tuple[Callable[..., None], tuple[object, ...]]


def change(
    action: Callable[..., None], *arguments: st.SearchStrategy[object]
) -> st.SearchStrategy[Change]:
    return st.tuples(st.just(action), st.tuples(*arguments))


some_lengths = st.lists(st.integers(1, 24), min_size=1, max_size=3)
small = st.integers(0, MOST_ROWS)
growing = (
    change(Twin.join, some_lengths),
    change(chunked, some_lengths, st.integers(1, 9)),
)
begins = change(recalled, small, st.integers(0, 20), st.integers(1, 9))
changes = st.one_of(
    *growing,
    change(stepped, st.integers(1, 2 * CHUNK)),
    change(Twin.step, st.integers(2, 7)),
    change(refilled, some_lengths, small),
    change(kept, st.lists(small, max_size=MOST_ROWS)),
    change(cloned, small, st.integers(1, 3)),
    begins,
)


anything = given(
    st.one_of(*growing),
    st.lists(changes, max_size=12),
    st.sampled_from([0, 6, 10]),
    st.booleans(),
    st.sampled_from([0, 3]),
    st.integers(0, 2**32),
)


@settings(deadline=None, max_examples=40)
@anything
def test_every_token_sees_its_own_rows_tokens_whatever_happens(
    first: Change, rest: list[Change], limit: int, anchored: bool, spare: int, seed: int
) -> None:
    assert_each_sees_its_own([first, *rest], limit, anchored, spare, seed)


@pytest.mark.slow
@settings(deadline=None, max_examples=400)
@anything
def test_so_it_is_in_many_more_cases(
    first: Change, rest: list[Change], limit: int, anchored: bool, spare: int, seed: int
) -> None:
    assert_each_sees_its_own([first, *rest], limit, anchored, spare, seed)


def assert_each_sees_its_own(
    made: Sequence[Change], limit: int, anchored: bool, spare: int, seed: int
) -> None:
    """Make these changes to a cache and its twin, with a pass behind each of them."""
    twin = Twin(small_shape(limit, anchored=anchored, spare=spare), np.random.default_rng(seed))
    for action, arguments in made:
        grows = action in (Twin.join, chunked, recalled)
        fits = len(twin.rows) <= MOST_ROWS - 3 and (action is not recalled or twin.rows)
        if fits if grows else twin.rows:
            action(twin, *arguments)
        assert twin.cache.rows == len(twin.rows)
        assert twin.cache._lengths == [row.shape[3] for row in twin.rows]
        assert_bounded(twin.cache)
        if twin.rows:
            twin.step()


def assert_bounded(cache: BatchCache) -> None:
    """No layer with a window has more columns than it, a chunk, and what one pass brought."""
    largest_pass = 24
    for layer in cache.layers:
        assert layer.keys.shape == layer.values.shape
        if layer.columns.window:
            assert layer.keys.shape[2] <= layer.columns.window + max(CHUNK, largest_pass)


def filled(shape: CacheShape, lengths: Sequence[int]) -> Twin:
    twin = Twin(shape, np.random.default_rng(0))
    twin.join(lengths)
    return twin


def capacities(cache: BatchCache) -> list[int]:
    return [layer.keys.shape[2] for layer in cache.layers]


def test_spare_columns_that_a_prefix_lacks_are_not_handed_on() -> None:
    """Taken back by five tokens, of which two are new: three of the eight spare are zeros."""
    shape = small_shape(spare=8)
    twin = filled(shape, [30])
    prefix = Prefix(30, [(keys + 0, values + 0) for keys, values in twin.cache.columns_of(0)])
    other = Twin(shape, twin.random, 1)
    other.cache.start([prefix.cut(25)])
    other.rows[0] = twin.rows[0][..., :25, :]
    other.step(2)
    for layer, (keys, values) in enumerate(other.cache.columns_of(0)):
        window, count = shape.windows[layer], keys.shape[2]
        assert count == (min(27, window - 1 + 8 - 3) if window else 27)
        wanted = other.rows[0][layer, :, :, 27 - count :]
        assert np.array_equal(np.array([keys[0], values[0]]), wanted)


def test_a_ragged_step_hides_the_padding_of_the_shorter_row() -> None:
    allowed = step_allowed(mx.array([4, 2]), size=1, shown=4)
    assert allowed.astype(mx.int32).tolist() == [[[[1, 1, 1, 1]]], [[[0, 0, 1, 1]]]]


def test_a_chunk_hides_the_future_the_padding_and_what_left_the_window() -> None:
    allowed = step_allowed(mx.array([9, 2]), size=3, shown=5, window=3)
    assert allowed.astype(mx.int32)[:, 0].tolist() == [
        [[1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 1]],
        [[0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 1]],  # padding sees itself
    ]


def test_rows_of_one_length_decode_without_a_mask() -> None:
    cache = filled(small_shape(), [7, 7]).cache
    assert set(cache.begin().masks.values()) == {None}
    assert cache.begin(2).masks[0] is not None  # the first of two must not see the second


def test_rows_of_several_lengths_need_a_mask_until_both_fill_the_window() -> None:
    cache = filled(small_shape(), [3, 12]).cache
    masks = cache.begin().masks
    assert isinstance(masks[0], mx.array)
    assert masks[0].shape == (2, 1, 1, 13)
    assert masks[4] is None  # 4 tokens now, and 4 are visible
    assert masks[16] is not None


def test_the_mask_and_the_buffers_have_the_dtype_of_the_model() -> None:
    cache = BatchCache(small_shape(dtype=mx.bfloat16), rows=2)
    view = cache.begin(3, [3, 1])
    new = mx.ones((2, KV_HEADS, 3, DIM), mx.bfloat16)
    keys, values = cache.layers[0].update(new, new)
    mask = view.masks[0]
    assert isinstance(mask, mx.array)
    assert {mask.dtype, keys.dtype, values.dtype} == {mx.bfloat16}


@pytest.mark.parametrize("limit", [0, 6])
def test_layers_with_a_window_stay_small_however_long_a_row_gets(limit: int) -> None:
    twin = filled(small_shape(limit), [40])
    for _ in range(10):
        stepped(twin, 5)
        for layer, capacity in zip(twin.cache.layers, capacities(twin.cache), strict=True):
            assert not layer.columns.window or capacity <= layer.columns.window + CHUNK
    assert twin.cache._lengths == [90]
    full = 6 + CHUNK if limit else 92
    assert capacities(twin.cache)[0] == full


def test_a_full_window_moves_once_in_a_chunk_of_steps() -> None:
    columns = Columns(window=16, chunk=CHUNK, end=16 + CHUNK, capacity=16 + CHUNK)
    needed = columns.needed(1000)
    assert columns.roomy(needed) - needed == CHUNK + 1


def test_a_long_row_that_leaves_takes_its_columns_along() -> None:
    twin = filled(small_shape(), [3, 200, 5])
    before = nbytes(twin.cache)
    twin.keep([0, 2])
    assert capacities(twin.cache)[0] <= 2 * CHUNK
    assert nbytes(twin.cache) < before / 10


def test_a_batch_that_is_refilled_for_ever_does_not_grow() -> None:
    twin = filled(small_shape(), [5, 9, 2])
    largest = 0
    for turn in range(40):
        twin.replace([turn % 3], [1 + turn % 7])
        stepped(twin, 4)
        largest = max(largest, *capacities(twin.cache))
    longest = 7 + 3 * 4
    assert largest <= longest + 2 * CHUNK


def test_a_long_row_that_is_replaced_is_forgotten_within_a_chunk_of_steps() -> None:
    twin = filled(small_shape(), [3, 200])
    twin.replace([1], [2])
    stepped(twin, CHUNK + 1)
    assert capacities(twin.cache)[0] <= 4 * CHUNK


def test_columns_that_are_padding_in_every_row_are_not_looked_at() -> None:
    twin = filled(small_shape(), [3, 200, 3])
    twin.replace([1], [3])
    assert twin.cache.begin().masks[0] is None
    new = mx.ones((3, KV_HEADS, 1, DIM))
    assert twin.cache.layers[0].update(new, new)[0].shape == (3, KV_HEADS, 4, DIM)


def test_an_empty_cache_holds_no_memory_and_can_be_filled_again() -> None:
    cache = BatchCache(CacheShape((0, 512), 2, 64, mx.float32))
    before = mx.get_active_memory()
    prompt = [(mx.ones((2, 2, 100, 64)), mx.ones((2, 2, 100, 64))) for _ in range(2)]
    join(cache, prompt, [100, 50])
    mx.eval(cache.arrays())
    del prompt
    layers, rows, heads, columns, dim, width = 2, 2, 2, 256, 64, 4
    assert nbytes(cache) == layers * 2 * rows * heads * columns * dim * width
    assert mx.get_active_memory() - before > nbytes(cache) * 0.9
    cache.keep([])
    mx.eval(cache.arrays())
    assert nbytes(cache) == 0
    assert cache.rows == 0
    assert mx.get_active_memory() - before < 4096
    twin = filled(small_shape(), [6, 2])
    twin.keep([])
    twin.join([3, 8])
    stepped(twin, 9)


def test_the_other_cache_of_a_merge_can_go_on_by_itself() -> None:
    twin = filled(small_shape(), [4])
    other = twin.in_chunks([6, 3], 4)
    twin.merge(other)
    stepped(other, 3)
    twin.step()
    twin.replace([0], [9])
    twin.merge(other)
    stepped(twin, 3)


@pytest.mark.parametrize("real", [[3, 1], [0, 0], [0, 5]])
def test_a_first_pass_may_be_wider_than_all_prompts(real: list[int]) -> None:
    twin = Twin(small_shape(), np.random.default_rng(0), rows=2)
    twin.step(5, real)
    stepped(twin, 6)


def test_padding_behind_a_token_is_refused() -> None:
    cache = filled(small_shape(), [4, 2]).cache
    with pytest.raises(ValueError, match="row 1 has 2 tokens and 1 of 3 new ones are real"):
        cache.begin(3, [3, 1])
    with pytest.raises(ValueError, match="row 0 has 4 tokens and 5 of 3"):
        cache.begin(3, [5, 3])
    assert cache._lengths == [4, 2]


def test_a_pass_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="without rows"):
        BatchCache(small_shape()).begin()


# Memory: one layer with keys and values of 8 MiB each.

BIG = CacheShape((0,), 2, 64, mx.float32)
EACH = 8 * 2**20


def big_cache() -> BatchCache:
    cache = BatchCache(BIG)
    keys = mx.ones((4, 2, 4000, 64))
    join(cache, [(keys, keys)], [4000] * 4)
    mx.eval(cache.arrays())
    assert nbytes(cache) == 2 * EACH
    return cache


def peak_of(work: Callable[[], object]) -> int:
    """Bytes that a piece of work needs at most, beside what was there."""
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    work()
    return mx.get_peak_memory() - before


def decode(cache: BatchCache) -> KeysValues:
    view = cache.begin()
    new = mx.ones((4, 2, 1, 64))
    keys, values = cache.layers[0].update(new, new)
    mx.eval(mx.fast.scaled_dot_product_attention(new, keys, values, scale=1.0, mask=view.masks[0]))
    return keys, values


def test_a_decode_step_writes_into_the_buffer_itself() -> None:
    cache = big_cache()

    def three_steps() -> None:
        for _ in range(3):
            decode(cache)

    assert peak_of(three_steps) < EACH / 8


def test_a_view_that_is_kept_makes_the_next_step_copy_the_cache() -> None:
    cache = big_cache()
    views = decode(cache)
    assert peak_of(lambda: decode(cache)) > EACH
    assert views[0].shape == (4, 2, 4001, 64)


def test_a_refill_copies_the_new_row_only() -> None:
    cache = big_cache()
    prompt = mx.ones((1, 2, 30, 64))
    other = prefilled(cache, [(prompt, prompt)], [30])
    mx.eval(other.arrays())

    def refill() -> None:
        cache.replace([2], other)
        mx.eval(cache.arrays())

    assert peak_of(refill) < EACH / 8
    assert cache._lengths == [4000, 4000, 30, 4000]


# End to end: every logit of a decoded batch against a cache-free pass over the same tokens.


class Batch:
    """A tiny model that decodes rows of random tokens."""

    def __init__(self, decoder: Decoder, limit: int = 0) -> None:
        config = decoder.config
        windows = tuple(kind.window for kind in config.layers)
        shape = CacheShape(
            windows, config.num_kv_heads, config.head_dim, decoder.dtype, limit, CHUNK
        )
        self.decoder, self.limit = decoder, limit
        self.cache = BatchCache(shape)
        self.tokens: list[list[int]] = []
        self.random = np.random.default_rng(0)
        self.worst = 0.0

    def draw(self, lengths: Sequence[int]) -> list[list[int]]:
        most = self.decoder.config.vocab_size
        return [self.random.integers(0, most, length).tolist() for length in lengths]

    def prefill(self, lengths: Sequence[int]) -> list[list[int]]:
        """Prompts in one pass; not for a limit, which it does not know."""
        prompts = self.draw(lengths)
        join(self.cache, prefill(self.decoder, prompts).cache, lengths)
        return prompts

    def prefill_in_chunks(self, lengths: Sequence[int], size: int) -> BatchCache:
        prompts, total = self.draw(lengths), max(lengths)
        cache = BatchCache(self.cache.shape, len(lengths))
        padded = mx.array([[0] * (total - len(prompt)) + prompt for prompt in prompts])
        for first in range(0, total, size):
            chunk = padded[:, first : first + size]
            behind = total - first - chunk.shape[1]
            real = [min(chunk.shape[1], max(0, length - behind)) for length in lengths]
            hidden = self.decoder(chunk, cache.begin(chunk.shape[1], real), cache.layers)[0]
        self.tokens += prompts
        self.compare(self.decoder.logits(hidden[:, -1]), prompts)
        return cache

    def step(self) -> None:
        for row, token in zip(self.tokens, self.draw([1] * len(self.tokens)), strict=True):
            row += token
        last = mx.array([row[-1:] for row in self.tokens])
        hidden = self.decoder(last, self.cache.begin(), self.cache.layers)[0]
        self.compare(self.decoder.logits(hidden[:, -1]), self.tokens)

    def compare(self, logits: mx.array, tokens: Sequence[Sequence[int]]) -> None:
        wanted = self.cache_free(tokens)
        self.worst = max(self.worst, float(np.array(mx.abs(logits - wanted).max())))

    def cache_free(self, tokens: Sequence[Sequence[int]]) -> mx.array:
        if not self.limit:
            return last_logits(self.decoder, tokens)
        return mx.concatenate([self.limited(row) for row in tokens])

    def limited(self, row: Sequence[int]) -> mx.array:
        """The defining mask with every layer's window cut to the limit."""
        size, dtype = len(row), self.decoder.dtype
        masks: dict[int, mx.array | None] = {
            window: additive(
                prefill_allowed(mx.array([size]), size, min(window or size, self.limit)), dtype
            )
            for window in self.cache.shape.windows
        }
        hidden = self.decoder(mx.array([list(row)]), View(0, masks))[0]
        return self.decoder.logits(hidden[:, -1])


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_decoding_with_refills_equals_a_cache_free_pass(
    checkpoint: Checkpoint, family: str
) -> None:
    batch = Batch(load_decoder(checkpoint(family)))
    batch.tokens = batch.prefill([3, 11, 7])
    for _ in range(10):
        batch.step()
    batch.cache.merge(batch.prefill_in_chunks([14, 2], 5))
    for _ in range(6):
        batch.step()
    batch.cache.keep([4, 0, 2])
    batch.tokens = [batch.tokens[row] for row in (4, 0, 2)]
    batch.cache.keep([*range(batch.cache.rows), 1])
    batch.tokens.append(list(batch.tokens[1]))
    for _ in range(6):
        batch.step()
    refill = batch.prefill_in_chunks([33], 8)
    batch.cache.replace([3], refill)
    batch.tokens[3] = batch.tokens.pop()
    for _ in range(12):
        batch.step()
    assert batch.worst < 1e-4


@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize("limit", [6, 12])
def test_a_limited_context_equals_a_window_on_all_layers(
    checkpoint: Checkpoint, family: str, limit: int
) -> None:
    batch = Batch(load_decoder(checkpoint(family)), limit)
    batch.cache.merge(batch.prefill_in_chunks([17, 4], 5))
    for _ in range(20):
        batch.step()
    assert batch.worst < 1e-4
    assert max(capacities(batch.cache)) <= limit + CHUNK
