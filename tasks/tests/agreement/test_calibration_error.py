"""The debiased calibration error: by hand, against numpy, and what it says in the long run."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_tasks.agreement import Agreement, gaps
from core_tasks.agreement.gaps import FINE, UNIT

Rows = list[tuple[float, bool]]
RUNS = 600


def counted(rows: Rows, bins: int = 15) -> Agreement:
    agreement = Agreement(bins=bins)
    for probability, right in rows:
        agreement.add("right", "right" if right else "wrong", probability)
    return agreement


def error_of(rows: Rows, bins: int = 15) -> gaps.CalibrationError:
    error = counted(rows, bins).calibration_error()
    assert error is not None
    return error


def test_two_bins_by_hand() -> None:
    rows = [(0.5, True), (0.5, False), (0.5, False), (0.9, True), (0.9, True), (0.9, False)]
    error = error_of(rows, 2)
    # Gaps of 1/3 - 0.5 and 2/3 - 0.9; each share has the variance (1/3 * 2/3) / (3 - 1) = 1/9.
    first, second = (1 / 6) ** 2 - 1 / 9, (7 / 30) ** 2 - 1 / 9
    assert error.squared == pytest.approx((first + second) / 2, abs=1e-8)
    assert error.value == 0.0
    # For the interval with one row more of each kind: 2/5 * 3/5 / 3 = 0.08.
    assert error.variance == pytest.approx((2 * 0.08**2) / 4 * 2, abs=1e-8)
    assert error.interval[0] == 0.0
    high = error.squared + 1.959964 * math.sqrt(error.variance)
    assert error.interval[1] == pytest.approx(math.sqrt(high), abs=1e-6)


def test_where_a_bin_has_one_probability_it_is_the_formula_of_kumar() -> None:
    draw = random.Random(1)
    levels = [0.55 + 0.03 * n for n in range(15)]
    rows = [(level, draw.random() < level - 0.1) for level in levels for _ in range(20)]
    wanted = 0.0
    for place, level in enumerate(levels):
        share = sum(right for _, right in rows[20 * place : 20 * place + 20]) / 20
        wanted += ((share - level) ** 2 - share * (1 - share) / 19) / 15
    assert error_of(rows).squared == pytest.approx(wanted, abs=1e-7)
    assert error_of(rows[::-1]).squared == error_of(rows).squared


@pytest.mark.parametrize("count", [5, 200])
def test_no_interval_exceeds_a_probability(count: int) -> None:
    """All rows are wrong at a probability of 1: no error is larger."""
    error = error_of([(1.0, False)] * count)
    assert error.value == 1.0
    assert 0 < error.interval[0] < error.interval[1] == 1.0


@pytest.mark.parametrize("count", [1, 2, 3, 29, 30, 31, 200, 1001])
def test_bins_are_of_about_as_many_rows_and_at_least_two(count: int) -> None:
    draw = np.random.default_rng(count)
    shares = np.sort(draw.permutation(15 * FINE)[:count] + 0.5) / (15 * FINE)
    cells = {gaps.cell_of(share, 15 * FINE): [1, 1, round(share * UNIT), 0] for share in shares}
    sizes = [bin.count for bin in gaps.of_equal_mass(cells, 15)]
    assert sum(sizes) == count
    assert len(sizes) == max(1, min(15, count // 2))
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= min(2, count)


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=2, max_size=80))
def test_rows_of_one_probability_are_in_one_bin_and_no_bin_has_one_row(
    numbers: list[tuple[int, bool]],
) -> None:
    rows = [(number / 40, right) for number, right in numbers]
    agreement = counted(rows)
    state = agreement.state()
    bins = gaps.of_equal_mass({cell: counts for cell, *counts in state["cells"]}, 15)
    assert sum(bin.count for bin in bins) == len(rows)
    assert min(bin.count for bin in bins) >= 2
    for bin in bins:
        own = [
            right for share, right in rows if bin.low < share <= bin.high or share == bin.low == 0
        ]
        assert (bin.count, bin.right) == (len(own), sum(own))
    error = error_of(rows)
    assert 0 <= error.interval[0] <= error.value <= error.interval[1]


@pytest.mark.parametrize(
    ("probability", "place"), [(0.0, 0), (1 / 15, 0), (0.0667, 1), (0.5, 7), (1.0, 14)]
)
def test_the_upper_edge_belongs_to_a_bin(probability: float, place: int) -> None:
    assert gaps.cell_of(probability, 15) == place
    assert gaps.cell_of(probability, 15 * FINE) // FINE == place


def test_certainty_that_is_right_has_no_error_and_one_that_is_wrong_has_the_whole() -> None:
    assert error_of([(1.0, True)] * 40).value == 0.0
    assert error_of([(0.8, False)] * 40).value == pytest.approx(0.8, abs=1e-6)
    assert error_of([(0.8, False)]).value == pytest.approx(0.8, abs=1e-6)
    few, many = error_of([(1.0, True)] * 5), error_of([(1.0, True)] * 5000)
    assert few.interval[1] > 0.2 > 0.01 > many.interval[1] > 0


def calibrated(share: float) -> float:
    return share


def too_sure(share: float) -> float:
    return share - 0.1


def sloped(share: float) -> float:
    return 0.5 + 0.6 * (share - 0.5)


@pytest.mark.parametrize(
    ("right", "true"), [(calibrated, 0.0), (too_sure, 0.1), (sloped, 0.4 * 0.5 / math.sqrt(3))]
)
@pytest.mark.parametrize("count", [60, 200])
def test_the_square_has_no_bias_and_its_interval_holds_the_error(
    count: int, right: Callable[[float], float], true: float
) -> None:
    """The plug-in figure of a calibrated model and 200 rows would be 0.1, far from 0."""
    draw, inside, squares = random.Random(count), 0, []
    for _ in range(RUNS):
        shares = [draw.uniform(0.5, 1.0) for _ in range(count)]
        error = error_of([(share, draw.random() < right(share)) for share in shares])
        squares.append(error.squared)
        inside += error.interval[0] <= true + 1e-12 and true <= error.interval[1]
    standard_error = np.std(squares) / math.sqrt(RUNS)
    assert abs(np.mean(squares) - true**2) < 3.5 * standard_error + 0.02 * true**2
    assert inside >= 0.93 * RUNS
