"""Micro-batches: everything once, within the budget, longest first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.serving.batching import micro_batches


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 120))
def test_every_row_runs_once_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = list(micro_batches(lengths, budget))
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = max(lengths[row] for row in batch) * len(batch)
        assert padded <= budget or len(batch) == 1
    longest = [max(lengths[row] for row in batch) for batch in batches]
    assert longest == sorted(longest, reverse=True)


def test_rows_of_equal_length_fill_the_budget() -> None:
    assert [len(batch) for batch in micro_batches([10] * 7, 30)] == [3, 3, 1]
