"""Which prompts run together: rows of similar length, under a budget of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def rounded_up(length: int, step: int) -> int:
    """The multiple of ``step`` that is no smaller."""
    return -(-length // step) * step


def micro_batches(
    lengths: Sequence[int], budget: int, *, in_order: bool = False
) -> Iterator[list[int]]:
    """Row indices, longest rows first, so that padding is small and memory peaks at the start.

    Each batch has at most ``budget`` tokens with its padding, or one row. ``in_order``: unsorted.
    """
    rows = range(len(lengths))
    longest = 0
    batch: list[int] = []
    for row in rows if in_order else sorted(rows, key=lambda row: -lengths[row]):
        longest = max(longest, lengths[row])
        if batch and longest * (len(batch) + 1) > budget:
            yield batch
            batch, longest = [], lengths[row]
        batch.append(row)
    if batch:
        yield batch
