"""Which prompts share a beginning that is worth computing by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

R = TypeVar("R")
_PASS = 64  # tokens that could be computed in the time of one more pass, about
_DEPTH = 64  # beginnings within beginnings that are looked at


class _Plan(NamedTuple):
    """Runs of sorted rows, each with the length of its beginning, and the tokens that it saves."""

    saved: int
    runs: list[tuple[int, int, int]]  # from, to before, beginning


def grouped(
    rows: Sequence[R], ids: Sequence[Sequence[int]], most: Sequence[int]
) -> Iterator[tuple[Sequence[int], list[R]]]:
    """Rows that share a beginning, and that beginning; the rows that share none come last.

    ``ids[i]`` are the tokens of ``rows[i]``, of which the first ``most[i]`` may be shared.
    """
    order = sorted(range(len(rows)), key=lambda row: list(ids[row]))
    common = [0]  # of each row with the one before
    for one, other in pairwise(order):
        common.append(min(_common(ids[one], ids[other]), most[one], most[other]))
    alone: list[int] = []
    for start, end, shared in _plan(common, 0, len(order), _DEPTH).runs:
        members = order[start:end]
        if shared:
            yield ids[members[0]][:shared], [rows[row] for row in members]
        else:
            alone += members
    if alone:
        yield (), [rows[row] for row in sorted(alone)]


def _plan(common: Sequence[int], start: int, end: int, depth: int) -> _Plan:
    """The best of: all of these rows together, or the runs that a shorter beginning parts."""
    if end - start < 2:
        return _Plan(0, [(start, end, 0)])
    shared = min(common[start + 1 : end])
    saved = shared * (end - start - 1) - _PASS
    whole = _Plan(saved, [(start, end, shared)]) if saved > 0 else _Plan(0, [(start, end, 0)])
    borders = [row for row in range(start + 1, end) if common[row] == shared]
    if depth == 0 or len(borders) == end - start - 1:
        return whole
    edges = [start, *borders, end]
    parts = [_plan(common, *edge, depth - 1) for edge in pairwise(edges)]
    apart = _Plan(sum(part.saved for part in parts), [run for part in parts for run in part.runs])
    return apart if apart.saved > whole.saved else whole


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(left), len(right)))
