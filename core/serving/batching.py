"""Which prompts run together: rows of similar length, under a budget of tokens."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence


def rounded_up(length: int, step: int) -> int:
    """The multiple of ``step`` that is no smaller."""
    return -(-length // step) * step


def micro_batches(
    lengths: Sequence[int], budget: int, *, in_order: bool = False, multiple: int = 1
) -> Iterator[list[int]]:
    """Row indices, longest rows first, so that padding is small and memory peaks at the start.

    Each batch has at most ``budget`` tokens with its padding, or one row. ``in_order``: unsorted.
    ``multiple``: of so many rows, where there are that many and more follow.
    """
    rows = range(len(lengths))
    longest = 0
    batch: list[int] = []
    for row in rows if in_order else sorted(rows, key=lambda row: -lengths[row]):
        longest = max(longest, lengths[row])
        while batch and longest * (len(batch) + 1) > budget:
            full = len(batch) // multiple * multiple or len(batch)
            yield batch[:full]
            batch = batch[full:]
            longest = max(lengths[row] for row in (*batch, row))
        batch.append(row)
    if batch:
        yield batch


def padded(lengths: Sequence[int]) -> int:
    """Tokens of one batch with its padding."""
    return max(lengths) * len(lengths)


def even_parts(lengths: Sequence[int], parts: int) -> list[list[int]]:
    """Row indices in order, in no more parts than that; the largest is as small as can be."""

    def split(budget: int) -> list[list[int]]:
        return list(micro_batches(lengths, budget, in_order=True))

    budgets = range(max(lengths), padded(lengths) + 1)
    enough = bisect_left(budgets, True, key=lambda budget: len(split(budget)) <= parts)
    return split(budgets[enough])
