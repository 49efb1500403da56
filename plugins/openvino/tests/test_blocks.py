"""The block tables of the KV cache: sharing, copies on writes, room, cuts."""

from __future__ import annotations

import numpy as np
import pytest

from core_openvino.blocks import BlockTables

WIDTH = 4


class Cache:
    """Tables over a cache of integers, one a position, which sequences write and read."""

    def __init__(self, count: int) -> None:
        self.cells = np.zeros((count, WIDTH), np.int64)
        self.copies: list[tuple[int, int]] = []
        self.tables = BlockTables(count, WIDTH, self._copy)
        self.count = count

    def _copy(self, source: int, target: int) -> None:
        self.copies.append((source, target))
        self.cells[target] = self.cells[source]

    def write(self, sequence: int, values: list[int]) -> None:
        """Append values to a sequence."""
        self.tables.reserve(sequence, len(values))
        table = self.tables.table(sequence)
        for place, value in enumerate(values, table.size):
            self.cells[table.blocks[place // WIDTH], place % WIDTH] = value
        self.tables.grow(sequence, len(values))

    def read(self, sequence: int) -> list[int]:
        """Return all values of a sequence."""
        table = self.tables.table(sequence)
        values: list[int] = self.cells[table.blocks].reshape(-1)[: table.size].tolist()
        return values

    def free(self) -> int:
        """Return how many blocks a new sequence can have."""
        count = 0
        try:
            while True:
                self.tables.reserve(-1, (count + 1) * WIDTH)
                count += 1
        except MemoryError:
            self.tables.cut(-1, 0)
        return count


def test_a_sequence_takes_as_few_blocks_as_it_fills() -> None:
    cache = Cache(8)
    cache.write(0, [1, 2, 3])
    cache.write(0, [4])
    cache.write(0, [5])
    assert cache.read(0) == [1, 2, 3, 4, 5]
    assert cache.tables.end(0) == 5
    assert cache.tables.table(0).blocks == [0, 1]  # the lowest first
    assert cache.free() == 6
    assert (cache.tables.end(7), cache.copies) == (0, [])


def test_a_shared_block_is_copied_by_the_first_that_writes_into_it() -> None:
    cache = Cache(8)
    cache.write(0, [1, 2, 3, 4, 5])
    cache.tables.share(0, 1)
    cache.tables.share(0, 2)
    assert cache.free() == 6
    cache.write(1, [6])
    cache.write(2, [7])
    cache.write(0, [8])  # it has its last block for itself by now
    assert [cache.read(sequence) for sequence in range(3)] == [
        [1, 2, 3, 4, 5, 8],
        [1, 2, 3, 4, 5, 6],
        [1, 2, 3, 4, 5, 7],
    ]
    assert cache.copies == [(1, 2), (1, 3)]
    assert cache.free() == 4


def test_full_blocks_are_shared_for_ever() -> None:
    cache = Cache(3)
    cache.write(0, [1, 2, 3, 4])
    cache.tables.share(0, 1)
    cache.write(1, [5])
    cache.tables.cut(0, 0)
    assert cache.read(1) == [1, 2, 3, 4, 5]
    assert (cache.copies, cache.free()) == ([], 1)


def test_a_cut_gives_blocks_back_and_a_later_write_spares_those_who_share() -> None:
    cache = Cache(8)
    cache.write(0, [1, 2, 3, 4, 5, 6, 7, 8])
    cache.tables.share(0, 1)
    cache.tables.cut(1, 2)
    assert (cache.read(1), cache.free()) == ([1, 2], 6)
    cache.write(1, [9])
    assert (cache.read(0), cache.read(1)) == ([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 9])
    cache.tables.cut(0, 4)
    cache.tables.cut(0, 100)
    assert (cache.read(0), cache.free()) == ([1, 2, 3, 4], 6)
    for sequence in (0, 1, 5):
        cache.tables.cut(sequence, 0)
    assert cache.free() == 8


def test_without_room_nothing_is_lost() -> None:
    cache = Cache(2)
    cache.write(0, [1, 2, 3])
    with pytest.raises(MemoryError, match="no block of the KV cache is free"):
        cache.write(0, [4] * 6)
    cache.tables.cut(0, 3)  # as a failed pass does
    assert (cache.read(0), cache.free()) == ([1, 2, 3], 1)
    cache.tables.share(0, 1)
    cache.write(1, [4])
    with pytest.raises(MemoryError):
        cache.write(0, [5, 6])
    cache.tables.cut(0, 3)
    assert (cache.read(0), cache.read(1)) == ([1, 2, 3], [1, 2, 3, 4])


@pytest.mark.parametrize("seed", range(20))
def test_random_calls_equal_lists(seed: int) -> None:
    random = np.random.default_rng(seed)
    cache, expected = Cache(24), {sequence: list[int]() for sequence in range(6)}
    for _ in range(300):
        sequence, other = random.choice(6, 2, replace=False).tolist()
        action = random.integers(4)
        if action == 0:
            cache.tables.cut(sequence, size := int(random.integers(12)))
            del expected[sequence][size:]
        elif action == 1:
            cache.tables.cut(other, 0)
            cache.tables.share(sequence, other)
            expected[other] = list(expected[sequence])
        else:
            values = random.integers(1000, size=random.integers(1, 10)).tolist()
            size = cache.tables.end(sequence)
            try:
                cache.write(sequence, values)
                expected[sequence] += values
            except MemoryError:
                cache.tables.cut(sequence, size)
        assert {key: cache.read(key) for key in expected} == expected
    for sequence in range(6):
        cache.tables.cut(sequence, 0)
    assert cache.free() == cache.count
