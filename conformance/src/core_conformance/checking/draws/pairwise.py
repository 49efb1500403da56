"""Covering arrays: few cases in which every two values of different factors come together once.

A fault that takes two options at a time shows in one of some fifteen cases, where all combinations
would be thousands. Greedy, after AETG (Cohen et al., IEEE Trans. Software Eng. 23(7), 1997).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from random import Random
from typing import Any

Case = dict[str, Any]
_Cell = tuple[str, int]  # a factor, and the place of one of its levels
_TRIED = 12  # cases, of which the one that covers the most is kept


def pairwise(factors: Mapping[str, Sequence[Any]], seed: int = 0) -> list[Case]:
    """Return the cases, those that cover the most first; the same ones for a seed."""
    random, cases = Random(seed), list[Case]()
    open_pairs = dict.fromkeys(  # a dict for its order
        pair for names in combinations(factors, 2) for pair in _pairs(factors, *names)
    )
    while open_pairs:
        tried = [_case(factors, open_pairs, random) for _ in range(_TRIED)]
        best = max(tried, key=lambda cells: sum(pair in open_pairs for pair in _within(cells)))
        for pair in _within(best):
            open_pairs.pop(pair, None)
        cases.append({name: factors[name][best[name]] for name in factors})
    return cases


def _pairs(
    factors: Mapping[str, Sequence[Any]], left: str, right: str
) -> list[tuple[_Cell, _Cell]]:
    """Return the pairs of levels of two factors."""
    lefts, rights = range(len(factors[left])), range(len(factors[right]))
    return [((left, one), (right, other)) for one in lefts for other in rights]


def _case(
    factors: Mapping[str, Sequence[Any]],
    open_pairs: Mapping[tuple[_Cell, _Cell], None],
    random: Random,
) -> dict[str, int]:
    """Return a case that begins with an open pair; each further level covers as many as it can."""
    cells = dict(next(iter(open_pairs)))
    others = [name for name in factors if name not in cells]
    for name in random.sample(others, len(others)):
        levels = list(range(len(factors[name])))
        random.shuffle(levels)  # `max` takes the first of equally good ones
        cells[name] = max(levels, key=lambda level: _covered((name, level), cells, open_pairs))
    return {name: cells[name] for name in factors}


def _covered(
    cell: _Cell, cells: Mapping[str, int], open_pairs: Mapping[tuple[_Cell, _Cell], None]
) -> int:
    return sum(
        (cell, other) in open_pairs or (other, cell) in open_pairs for other in cells.items()
    )


def _within(cells: Mapping[str, int]) -> list[tuple[_Cell, _Cell]]:
    return list(combinations(cells.items(), 2))
