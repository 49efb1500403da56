"""Micro-batches for a GPU: rows sorted by length, cut where padding and passes cost least.

`core_runtime.batches.micro_batches` fills one micro-batch after another, which is right if passes
are small and cheap. The larger a pass, the more its lengths differ, and the more is padding.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

_HALVINGS = 3  # of the largest power of two: only the last pass may be smaller than an eighth

RowsThatFit = Callable[[int], int]  # rows per micro-batch, by the length of its longest row
Ways = Callable[[int], Iterable[tuple[int, int]]]  # from a start: where to stop, rows with padding


@dataclass(frozen=True, slots=True)
class Cuts:
    """Partition of rows into micro-batches.

    ``cost``: the fixed cost of a pass, in tokens. ``few_shapes``: micro-batches are padded with
    empty rows to a power of two, for a device that plans each shape.
    """

    cost: int
    few_shapes: bool = False

    def micro_batches(self, lengths: Sequence[int], fit: RowsThatFit) -> list[list[int]]:
        """Return row indices, longest rows first, in the cuts with the least padding and passes.

        ``fit(length)`` is the number of rows that fit if the longest has ``length`` tokens; it
        must not grow with the length, and one row always fits. With ``few_shapes`` it is rounded
        down to a power of two.
        """
        order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
        ordered = [lengths[row] for row in order]
        starts, ways = (_few if self.few_shapes else _any)(ordered, fit)
        cuts = _cheapest(ordered, starts, ways, self.cost)
        return [order[start:stop] for start, stop in pairwise(cuts)]

    def with_padding(self, rows: int) -> int:
        """Return the number of rows of a pass, empty ones included."""
        return _power_of_two(rows) if self.few_shapes else rows


def _cheapest(lengths: Sequence[int], starts: Sequence[int], ways: Ways, cost: int) -> list[int]:
    """Return the cheapest cuts, the first and the last included.

    ``starts`` are the rows where a micro-batch may begin, in ascending order.
    """
    # From the end: the cost of all rows from a start on, and the end of its micro-batch.
    end = len(lengths)
    best, stops = {end: 0}, {}
    for start in reversed(starts):
        length = lengths[start]
        least, later = min((length * rows + best[stop], -stop) for stop, rows in ways(start))
        best[start], stops[start] = least + cost, -later  # if equally cheap, the larger one

    cuts = [0]
    while cuts[-1] < end:
        cuts.append(stops[cuts[-1]])
    return cuts


def _any(lengths: Sequence[int], fit: RowsThatFit) -> tuple[list[int], Ways]:
    """Return the starts that may be part of the best cuts, for micro-batches of any size.

    A cut between two rows of equal length pays only if the micro-batch after it is full: otherwise
    the row before the cut costs no more after it.
    """
    end = len(lengths)
    starts = {end}
    for length, rows in _runs(lengths):
        full = max(1, fit(length))

        # The run's first row, and each row whose full micro-batch ends at another start.
        for start in tuple(starts):
            while (start := start - full) in rows:
                starts.add(start)
        starts.add(rows.start)

    ordered = sorted(starts)
    place = {start: index for index, start in enumerate(ordered)}

    def ways(start: int) -> Iterable[tuple[int, int]]:
        last = bisect_right(ordered, start + max(1, fit(lengths[start])))
        return ((stop, stop - start) for stop in ordered[place[start] + 1 : last])

    return ordered[:-1], ways


def _few(lengths: Sequence[int], fit: RowsThatFit) -> tuple[list[int], Ways]:
    """Return the starts for micro-batches of a power of two of rows, the last partly empty."""
    end = len(lengths)

    def ways(start: int) -> Iterable[tuple[int, int]]:
        most = max(1, fit(lengths[start]))
        largest = _power_of_two(most + 1) // 2
        sizes = {max(1, largest >> halvings) for halvings in range(_HALVINGS + 1)}
        left = _power_of_two(end - start)
        if left < largest:
            sizes.add(left)
        return ((min(start + size, end), size) for size in sizes)

    # All starts that can be reached from the first row.
    starts = {0} if lengths else set()
    waiting = list(starts)
    for start in waiting:
        new = {stop for stop, _ in ways(start) if stop < end} - starts
        starts |= new
        waiting += new
    return sorted(starts), ways


def _runs(lengths: Sequence[int]) -> Iterable[tuple[int, range]]:
    """Yield each length with its rows, from the last to the first."""
    stop = len(lengths)
    for length, rows in groupby(reversed(lengths)):
        start = stop - len(list(rows))
        yield length, range(start, stop)
        stop = start


def _power_of_two(rows: int) -> int:
    """Return the smallest power of two that is at least ``rows``."""
    return 1 << (rows - 1).bit_length()
