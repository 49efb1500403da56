"""Which prompts run together: rows of similar length, under a budget of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def micro_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Row indices, longest rows first, so that padding is small and memory peaks at the start.

    Each batch has at most ``budget`` tokens with its padding, or one row.
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    batch: list[int] = []
    for row in order:
        if batch and lengths[batch[0]] * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
