"""Prompts that begin alike: which of them share a prefix that is worth computing once.

Prompts in order of their tokens stand beside those that begin alike. A run of them with ``n`` rows
and ``p`` tokens in common saves ``(n - 1) * p`` tokens as one group; it is split where its parts
save more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

R = TypeVar("R")
_PASS = 32  # tokens that a pass of its own for a prefix costs on a CPU, about: it reads the weights
_DEPTH = 16  # splits of splits; prompts that differ in more ways than that have little in common


@dataclass(frozen=True, slots=True)
class Group:
    """Rows, by their index, of which the first ``prefix`` tokens are the same."""

    prefix: int
    rows: tuple[int, ...]


def shared_prefixes(
    prompts: Sequence[Sequence[int]], limits: Sequence[int], cost: int = _PASS
) -> list[Group]:
    """Divide the prompts into groups, each row into one.

    Of row i at most ``limits[i]`` tokens may be in a prefix. Rows that share nothing worth it are
    one group, with an empty prefix. ``cost`` is that of a group's own pass, in tokens.
    """
    order = sorted(range(len(prompts)), key=lambda row: tuple(prompts[row]))
    common = [_common(prompts[a], prompts[b]) for a, b in pairwise(order)]
    groups: list[Group] = []
    alone: list[int] = []
    allowed = [limits[row] for row in order]
    for start, stop, prefix in _best(common, allowed, cost, 0, len(order), 0)[1]:
        rows = tuple(order[start:stop])
        if prefix:
            groups.append(Group(prefix, rows))
        else:
            alone += rows
    return [*groups, Group(0, tuple(alone))] if alone else groups


def grouped(
    rows: Sequence[R],
    prompts: Sequence[Sequence[int]],
    limits: Sequence[int],
    cost: int = _PASS,
) -> Iterator[tuple[Sequence[int], list[R]]]:
    """The same for rows that are more than tokens: each group's prefix, and its rows."""
    for group in shared_prefixes(prompts, limits, cost):
        yield prompts[group.rows[0]][: group.prefix], [rows[row] for row in group.rows]


Part = tuple[int, int, int]  # start, stop, prefix


def _best(
    common: Sequence[int], limits: Sequence[int], cost: int, start: int, stop: int, depth: int
) -> tuple[int, list[Part]]:
    """How many tokens are saved among the ordered rows from start to stop, and by what parts."""
    if stop - start < 2:
        return 0, [(start, stop, 0)]
    least = min(common[start : stop - 1])
    prefix = min(least, *limits[start:stop])
    saved = (stop - start - 1) * prefix - cost
    whole = (saved, [(start, stop, prefix)]) if saved > 0 else (0, [(start, stop, 0)])
    if depth == _DEPTH or max(common[start : stop - 1]) == least:
        return whole
    cuts = [index + 1 for index in range(start, stop - 1) if common[index] == least]
    parts = [
        _best(common, limits, cost, a, b, depth + 1) for a, b in pairwise((start, *cuts, stop))
    ]
    split = sum(part[0] for part in parts)
    return whole if whole[0] >= split else (split, [one for part in parts for one in part[1]])


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens two prompts begin with alike."""
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return min(len(left), len(right))
