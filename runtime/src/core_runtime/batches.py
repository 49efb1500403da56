"""Grouping of rows that run together: by length within a budget, and by shared prefix."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

R = TypeVar("R")
_PASS = 32  # tokens: the cost of a separate pass for a prefix on a CPU, which reads the weights
_DEPTH = 16  # splits of splits; prompts that differ in more ways than that have little in common


def rounded_up(length: int, step: int) -> int:
    """Return the smallest multiple of ``step`` that is at least ``length``."""
    return -(-length // step) * step


def micro_batches(
    lengths: Sequence[int], budget: int, *, in_order: bool = False, multiple: int = 1
) -> Iterator[list[int]]:
    """Yield row indices, longest rows first: padding is small and memory peaks at the start.

    Each batch has at most ``budget`` tokens with its padding, or one row. With ``in_order`` rows
    keep their order. Every batch but the last has a multiple of ``multiple`` rows, if that many
    fit: for engines that divide a batch among workers.
    """
    rows = range(len(lengths))
    longest = 0
    batch: list[int] = []

    for row in rows if in_order else sorted(rows, key=lambda row: -lengths[row]):
        longest = max(longest, lengths[row])

        # With this row the batch is too large: rows beyond a multiple start the next batch.
        while batch and longest * (len(batch) + 1) > budget:
            full = len(batch) // multiple * multiple or len(batch)
            yield batch[:full]
            batch = batch[full:]
            longest = max(lengths[row] for row in (*batch, row))
        batch.append(row)

    if batch:
        yield batch


def padded(lengths: Sequence[int]) -> int:
    """Return the number of tokens of one batch of these rows, with its padding."""
    return max(lengths) * len(lengths)


def even_parts(lengths: Sequence[int], parts: int) -> list[list[int]]:
    """Divide rows, in order, into at most ``parts`` parts, the largest as small as possible."""

    def split(budget: int) -> list[list[int]]:
        return list(micro_batches(lengths, budget, in_order=True))

    budgets = range(max(lengths), padded(lengths) + 1)
    enough = bisect_left(budgets, True, key=lambda budget: len(split(budget)) <= parts)
    return split(budgets[enough])


@dataclass(frozen=True, slots=True)
class PrefixGroup:
    """Rows, by index, that share their first ``prefix`` tokens."""

    prefix: int
    rows: tuple[int, ...]


def shared_prefixes(
    prompts: Sequence[Sequence[int]], limits: Sequence[int], cost: int = _PASS
) -> list[PrefixGroup]:
    """Divide the prompts into groups, each row into one.

    At most ``limits[i]`` tokens of row i may be in a prefix. Rows without a worthwhile prefix are
    one group, with an empty prefix. ``cost``: the cost of a pass for a prefix, in tokens.
    """
    # In alphabetical order, rows with a shared prefix are neighbours.
    texts = [_in_order(prompt) for prompt in prompts]
    order = sorted(range(len(prompts)), key=texts.__getitem__)
    common = [_alike(texts[a], texts[b]) for a, b in pairwise(order)]

    groups: list[PrefixGroup] = []
    alone: list[int] = []
    allowed = [limits[row] for row in order]
    for start, stop, prefix in _best(common, allowed, cost, 0, len(order), 0)[1]:
        rows = tuple(order[start:stop])
        if prefix:
            groups.append(PrefixGroup(prefix, rows))
        else:
            alone += rows

    return [*groups, PrefixGroup(0, tuple(alone))] if alone else groups


def by_prefix(
    rows: Sequence[R],
    prompts: Sequence[Sequence[int]],
    limits: Sequence[int],
    cost: int = _PASS,
) -> Iterator[tuple[Sequence[int], list[R]]]:
    """Yield the groups of `shared_prefixes`, each with its prefix's tokens and its rows."""
    for group in shared_prefixes(prompts, limits, cost):
        yield prompts[group.rows[0]][: group.prefix], [rows[row] for row in group.rows]


def _in_order(ids: Sequence[int]) -> bytes:
    """Return the ids as bytes that sort like the ids: four bytes per id, the highest first."""
    numbers = array("I", ids)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


def _alike(left: bytes, right: bytes) -> int:
    """Return the length of the common prefix of two rows, in ids."""
    size = min(len(left), len(right))
    differs = int.from_bytes(left[:size], "big") ^ int.from_bytes(right[:size], "big")
    return (size - (differs.bit_length() + 7) // 8) // 4


Part = tuple[int, int, int]  # start, stop, prefix


def _best(
    common: Sequence[int], limits: Sequence[int], cost: int, start: int, stop: int, depth: int
) -> tuple[int, list[Part]]:
    """Return the number of tokens saved in the ordered rows from start to stop, and the parts."""
    if stop - start < 2:
        return 0, [(start, stop, 0)]

    # All of them as one group, with the prefix that all share.
    least = min(common[start : stop - 1])
    prefix = min(least, *limits[start:stop])
    saved = (stop - start - 1) * prefix - cost
    whole = (saved, [(start, stop, prefix)]) if saved > 0 else (0, [(start, stop, 0)])
    if depth == _DEPTH or max(common[start : stop - 1]) == least:
        return whole

    # Or split where neighbours share least; the parts then have longer prefixes.
    cuts = [index + 1 for index in range(start, stop - 1) if common[index] == least]
    parts = [
        _best(common, limits, cost, a, b, depth + 1) for a, b in pairwise((start, *cuts, stop))
    ]
    split = sum(part[0] for part in parts)
    return whole if whole[0] >= split else (split, [one for part in parts for one in part[1]])
