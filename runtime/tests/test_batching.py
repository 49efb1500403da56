"""Micro-batches: everything once, within the budget, longest first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core_runtime.batches import even_parts, micro_batches, padded

LENGTHS = st.lists(st.integers(1, 50), max_size=40)


@given(LENGTHS, st.integers(1, 120), st.integers(1, 4))
def test_every_row_runs_once_within_the_budget(
    lengths: list[int], budget: int, multiple: int
) -> None:
    batches = list(micro_batches(lengths, budget, multiple=multiple))
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = max(lengths[row] for row in batch) * len(batch)
        assert padded <= budget or len(batch) == 1
    longest = [max(lengths[row] for row in batch) for batch in batches]
    assert longest == sorted(longest, reverse=True)


def test_rows_of_equal_length_fill_the_budget() -> None:
    assert [len(batch) for batch in micro_batches([10] * 7, 30)] == [3, 3, 1]


def test_batches_have_a_multiple_of_rows_while_there_are_enough() -> None:
    sizes = [len(batch) for batch in micro_batches([10] * 12, 50, multiple=2)]
    assert sizes == [4, 4, 4]
    assert [len(batch) for batch in micro_batches([10] * 11, 50, multiple=4)] == [4, 4, 3]
    assert [len(batch) for batch in micro_batches([10] * 5, 10, multiple=2)] == [1] * 5


@given(LENGTHS.filter(bool), st.integers(1, 5))
def test_parts_are_as_even_as_rows_in_order_allow(lengths: list[int], parts: int) -> None:
    found = even_parts(lengths, parts)
    assert [row for part in found for row in part] == list(range(len(lengths)))
    assert len(found) <= parts
    largest = max(padded([lengths[row] for row in part]) for part in found)
    smaller = list(micro_batches(lengths, largest - 1, in_order=True))
    assert len(smaller) > parts or max(lengths) == largest
