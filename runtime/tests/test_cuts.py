"""Cuts: everything once, within what fits, and no cheaper way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_runtime.batches import micro_batches
from core_runtime.cuts import Cuts

LENGTHS = st.lists(st.integers(1, 50), max_size=60)
FEW_LENGTHS = st.lists(st.integers(1, 6), max_size=40)  # many rows of each
SHORT = st.lists(st.integers(1, 9), min_size=1, max_size=9)
BUDGETS, COSTS, LEAST = st.integers(1, 400), st.integers(0, 100), st.integers(1, 12)


def fits(budget: int, least: int = 1) -> Callable[[int], int]:
    """Within a budget of tokens, where a row weighs ``least`` tokens at least."""
    return lambda longest: budget // max(longest, least)


def cost_of(cuts: Cuts, lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> int:
    """What micro-batches cost, padding and passes together."""
    tokens = [max(lengths[r] for r in rows) * cuts.with_padding(len(rows)) for rows in batches]
    return sum(tokens) + cuts.cost * len(batches)


def all_cuts(lengths: Sequence[int], fit: Callable[[int], int]) -> Iterator[list[list[int]]]:
    """Every way to cut the sorted rows within what fits."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    for count in range(len(order)):
        for inner in combinations(range(1, len(order)), count):
            batches = [order[a:b] for a, b in pairwise((0, *inner, len(order)))]
            if all(len(rows) <= max(1, fit(lengths[rows[0]])) for rows in batches):
                yield batches


@given(LENGTHS | FEW_LENGTHS, BUDGETS, COSTS, LEAST, st.booleans())
def test_every_row_runs_once_and_fits(
    lengths: list[int], budget: int, cost: int, least: int, few: bool
) -> None:
    cuts, fit = Cuts(cost, few), fits(budget, least)
    batches = cuts.micro_batches(lengths, fit)
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    for rows in batches:
        assert len(rows) <= cuts.with_padding(len(rows))
        assert cuts.with_padding(len(rows)) <= max(1, fit(max(lengths[row] for row in rows)))
    longest = [max(lengths[row] for row in rows) for rows in batches]
    assert longest == sorted(longest, reverse=True)


@given(LENGTHS | FEW_LENGTHS, BUDGETS, COSTS)
def test_they_cost_no_more_than_micro_batches_that_are_filled(
    lengths: list[int], budget: int, cost: int
) -> None:
    cuts = Cuts(cost)
    filled = list(micro_batches(lengths, budget))
    found = cuts.micro_batches(lengths, fits(budget))
    assert cost_of(cuts, lengths, found) <= cost_of(cuts, lengths, filled)


@given(SHORT, st.integers(1, 40), st.integers(0, 20), LEAST)
def test_no_other_cuts_cost_less(lengths: list[int], budget: int, cost: int, least: int) -> None:
    cuts, fit = Cuts(cost), fits(budget, least)
    found = cuts.micro_batches(lengths, fit)
    cheapest = min(cost_of(cuts, lengths, batches) for batches in all_cuts(lengths, fit))
    assert cost_of(cuts, lengths, found) == cheapest


@given(SHORT, st.integers(8, 15), st.integers(0, 20))  # of 8 rows, each power of two is looked at
def test_with_few_shapes_no_other_cuts_cost_less(
    lengths: list[int], budget: int, cost: int
) -> None:
    """Of those where each micro-batch but the last is full: an empty row costs as much as one."""
    cuts, fit = Cuts(cost, few_shapes=True), fits(budget)
    found = cuts.micro_batches(lengths, fit)

    def allowed(batches: list[list[int]]) -> bool:
        sizes = [cuts.with_padding(len(rows)) for rows in batches]
        within = all(
            size <= max(1, fit(lengths[rows[0]])) for size, rows in zip(sizes, batches, strict=True)
        )
        return within and sizes[:-1] == [len(rows) for rows in batches[:-1]]

    cheapest = min(
        cost_of(cuts, lengths, batches) for batches in all_cuts(lengths, fit) if allowed(batches)
    )
    assert cost_of(cuts, lengths, found) == cheapest


def test_a_long_row_does_not_lengthen_the_others() -> None:
    lengths = [10] * 20 + [100]
    assert [len(rows) for rows in Cuts(50).micro_batches(lengths, fits(2000))] == [1, 20]
    assert [len(rows) for rows in Cuts(2000).micro_batches(lengths, fits(2100))] == [21]


def test_a_cut_between_equal_rows_leaves_the_last_micro_batches_full() -> None:
    """A pass is dear: two of the short rows run with the long one, and fifty fill each of two."""
    lengths = [10] + [1] * 102
    assert [len(rows) for rows in Cuts(50).micro_batches(lengths, fits(50))] == [3, 50, 50]


def test_with_few_shapes_rows_are_counted_in_powers_of_two() -> None:
    cuts = Cuts(10, few_shapes=True)
    assert [cuts.with_padding(rows) for rows in (1, 2, 3, 5, 64)] == [1, 2, 4, 8, 64]
    assert [len(rows) for rows in cuts.micro_batches([1] * 37, fits(16))] == [16, 16, 5]
    assert Cuts(10).with_padding(5) == 5


@pytest.mark.parametrize("few", [False, True])
def test_sizes_of_calls_are_few_shapes_where_that_is_asked_for(few: bool) -> None:
    cuts = Cuts(10, few)
    shapes = {
        cuts.with_padding(len(batch))
        for rows in range(1, 200)
        for batch in cuts.micro_batches([4] * rows, fits(512))
    }
    assert (len(shapes) == 8) == few
    assert (len(shapes) > 100) != few


@pytest.mark.parametrize("few", [False, True])
def test_no_rows_and_rows_that_are_too_long(few: bool) -> None:
    assert Cuts(1, few).micro_batches([], fits(5)) == []
    assert Cuts(1, few).micro_batches([7, 9, 8], fits(5)) == [[1], [2], [0]]
