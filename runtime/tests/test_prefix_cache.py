"""The cache of prefixes against a model that looks at every entry."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InvalidOptionError
from core.options import LoadConfig
from core_runtime.choices import prefix_cache
from core_runtime.prefix_cache import PrefixCache

Ids = tuple[int, ...]
ids = st.lists(st.integers(0, 1), max_size=8).map(tuple)
kept = st.tuples(st.just("keep"), ids.filter(len), st.integers(1, 12), st.integers(1, 8))
looked_for = st.tuples(st.just("longest"), ids, st.integers(-1, 9), st.just(0))
taken = st.tuples(st.just("take"), ids, st.integers(0, 9), st.just(0))
shrunk = st.tuples(st.just("shrink"), st.just(()), st.integers(0, 40), st.just(0))
operations = st.lists(st.one_of(kept, kept, looked_for, taken, shrunk), max_size=40)


def common(left: Ids, right: Ids) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )


@dataclass
class Naive:
    """The same promises in a list, those used last at its end: ids, name, size, least."""

    limit: int
    entries: list[tuple[Ids, int, int, int]]
    dropped: list[int]

    def usable(self, wanted: Ids) -> list[tuple[int, tuple[Ids, int, int, int]]]:
        pairs = [(common(entry[0], wanted), entry) for entry in self.entries]
        return [(size, entry) for size, entry in pairs if size >= max(1, entry[3])]

    def use(self, entry: tuple[Ids, int, int, int]) -> None:
        self.entries.remove(entry)
        self.entries.append(entry)

    def keep(self, new: tuple[Ids, int, int, int]) -> None:
        covering = [e for e in self.entries if e[0][: len(new[0])] == new[0] and e[3] <= new[3]]
        if covering:
            self.dropped.append(new[1])
            return
        if new[2] > self.limit:
            self.dropped.append(new[1])
            return
        covered = [e for e in self.entries if new[0][: len(e[0])] == e[0] and new[3] <= e[3]]
        self.dropped += [e[1] for e in covered]
        self.entries = [e for e in self.entries if e not in covered]
        self.shrink(self.limit - new[2])
        self.entries.append(new)

    def shrink(self, limit: int) -> None:
        while sum(e[2] for e in self.entries) > limit:
            self.dropped.append(self.entries.pop(0)[1])


@given(operations, st.integers(1, 40))
def test_it_is_what_the_naive_model_is(steps: list[tuple[str, Ids, int, int]], limit: int) -> None:
    dropped: list[int] = []
    cache: PrefixCache[int] = PrefixCache(limit, dropped.append)
    naive = Naive(limit, [], [])
    for name, (what, tokens, number, least) in enumerate(steps):
        if what == "keep":
            least = min(least, len(tokens))
            covering = [e for e in naive.entries if e[0][: len(tokens)] == tokens and e[3] <= least]
            assert cache.keep(tokens, name, number, least) == (number <= limit and not covering)
            naive.keep((tokens, name, number, least))
            if covering:  # any of them may count as used
                used = [e for e in covering if e[1] == last(cache)]
                naive.use(*used)
        elif what == "shrink":
            cache.shrink(number)
            naive.shrink(number)
        else:
            found = cache.longest(tokens, number)
            usable = naive.usable(tokens[: max(0, number)])
            assert (found is None) == (not usable)
            if found is not None:
                best = max(size for size, _ in usable)
                (entry,) = [e for _, e in usable if e[1] == found.entry.payload]
                assert found.size == best == common(entry[0], tokens[:number])
                naive.use(entry)
                if what == "take":
                    assert cache.take(found) == entry[1]
                    naive.entries.remove(entry)

        assert dropped == naive.dropped or sorted(dropped) == sorted(naive.dropped)
        assert cache.used == sum(e[2] for e in naive.entries) <= limit
        assert len(cache) == len(naive.entries)
    cache.clear()
    assert (len(cache), cache.used) == (0, 0)
    assert len(set(dropped)) == len(dropped)  # nothing is dropped twice


def last(cache: PrefixCache[int]) -> int:
    """The payload that was used last."""
    return list(cache._entries.values())[-1].payload


def test_the_longest_beginning_is_found_among_many() -> None:
    cache: PrefixCache[int] = PrefixCache(2**20)
    for length in range(1, 200):
        assert cache.keep([7] * length + [length], length, 1)
    found = cache.longest([7] * 150 + [9], 1000)
    assert found is not None
    assert (found.size, found.entry.payload >= 150) == (150, True)
    assert cache.longest([9], 1) is None
    assert cache.longest([7], 0) is None


def test_an_entry_that_lost_its_beginning_serves_from_its_least_on() -> None:
    cache: PrefixCache[str] = PrefixCache(100)
    cache.keep([1, 2, 3, 4, 5, 6], "window", 1, least=5)
    cache.keep([1, 2, 3], "whole", 1)

    def serves(*ids: int) -> tuple[str, int] | None:
        found = cache.longest(ids, len(ids))
        return None if found is None else (found.entry.payload, found.size)

    assert serves(1, 2, 3, 4, 5) == ("window", 5)
    assert serves(1, 2, 3, 4, 9) == ("whole", 3)  # four are common, which the window has lost
    assert serves(1, 9) == ("whole", 1)


def test_an_entry_that_repeats_the_beginning_of_another_goes() -> None:
    dropped: list[str] = []
    cache: PrefixCache[str] = PrefixCache(100, dropped.append)
    assert cache.keep([1, 2], "short", 10)
    assert cache.keep([1, 2, 3], "long", 10)
    assert not cache.keep([1, 2], "again", 10)
    assert (dropped, cache.used) == (["short", "again"], 10)

    assert cache.keep([1, 2, 3, 4], "window", 10, least=4)  # it does not serve for three
    assert (dropped, cache.used) == (["short", "again"], 20)


def test_used_longest_ago_goes_first_and_one_too_large_at_once() -> None:
    dropped: list[str] = []
    cache: PrefixCache[str] = PrefixCache(30, dropped.append)
    for name in "abc":
        cache.keep([ord(name)], name, 10)
    assert cache.longest([ord("a")], 1)
    cache.keep([0], "d", 10)
    assert dropped == ["b"]
    assert not cache.keep([1], "giant", 31)
    assert dropped == ["b", "giant"]
    cache.shrink(10)
    assert dropped == ["b", "giant", "c", "a"]
    cache.clear()
    assert (dropped[-1], cache.used) == ("d", 0)


@pytest.mark.parametrize("least", [0, 3])
def test_an_entry_that_can_never_serve_is_a_mistake(least: int) -> None:
    with pytest.raises(ValueError, match=f"2 tokens cannot serve from {least}"):
        PrefixCache[int](10).keep([1, 2], 0, 1, least)
    with pytest.raises(ValueError, match="0 tokens"):
        PrefixCache[int](10).keep([], 0, 1)


# -------------------------------------------------------------------------------- the option


@pytest.mark.parametrize(
    ("free", "bytes_", "reason"),
    [
        (64 << 30, 1 << 30, "as many as are likely to help"),
        (8 << 30, 512 << 20, "a sixteenth of the 8.6 GB free"),
        (None, 256 << 20, "free memory is not known"),
    ],
)
def test_the_default_is_bounded_by_free_memory(free: int | None, bytes_: int, reason: str) -> None:
    chosen = prefix_cache(LoadConfig(), free)
    assert (chosen.name, chosen.value) == ("prefix_cache", bytes_)
    assert reason in chosen.reason


def test_what_the_user_asks_for_wins() -> None:
    assert prefix_cache(LoadConfig(options={"prefix_cache": 77}), 1).value == 77
    off = prefix_cache(LoadConfig(options={"prefix_cache": 0}), 1)
    assert (off.value, off.reason) == (0, "asked for")
    with pytest.raises(InvalidOptionError, match="prefix_cache=-1"):
        prefix_cache(LoadConfig(options={"prefix_cache": -1}), 1)
