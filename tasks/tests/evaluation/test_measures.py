"""The measures against counting, and against known values."""

from __future__ import annotations

import itertools
import math
import statistics
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_tasks.evaluation.marking import majority
from core_tasks.evaluation.measures import mcnemar, mean_interval, pass_at


@pytest.mark.parametrize("samples", range(1, 7))
def test_pass_at_is_the_share_of_draws_with_a_right_one(samples: int) -> None:
    for right in range(samples + 1):
        marks = [True] * right + [False] * (samples - right)
        for k in range(1, samples + 1):
            draws = [*itertools.combinations(marks, k)]
            assert pass_at(k, samples, right) == Fraction(sum(map(any, draws)), len(draws))


def test_more_draws_than_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="k=3 is not valid: expected a number from 1 to 2"):
        pass_at(3, 2, 1)


@given(st.integers(0, 12), st.integers(0, 12))
def test_mcnemar_is_the_share_of_coin_throws_as_uneven(first: int, second: int) -> None:
    total, apart = first + second, abs(first - second)
    # All 2^n sequences, by how many heads they have.
    uneven = sum(math.comb(total, k) for k in range(total + 1) if abs(2 * k - total) >= apart)
    assert mcnemar(first, second) == pytest.approx(uneven / 2**total, abs=1e-12)


def test_mcnemar_of_a_known_table() -> None:
    # statsmodels.stats.contingency_tables.mcnemar([[0, 6], [1, 0]], exact=True)
    assert mcnemar(6, 1) == pytest.approx(0.125, abs=1e-12)
    assert mcnemar(0, 0) == 1.0


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30))
def test_the_interval_of_a_mean_is_that_of_its_standard_error(values: list[float]) -> None:
    mean = statistics.fmean(values)
    interval = mean_interval(mean, statistics.fmean(v * v for v in values), len(values))
    reach = 1.959963984540054 * statistics.stdev(values) / math.sqrt(len(values))
    assert interval == pytest.approx((max(0, mean - reach), min(1, mean + reach)), abs=1e-6)


def test_what_most_say() -> None:
    assert majority(["a", "b", "b", None, None, None]) == "b"
    assert majority(["b", "a"]) == "b"
    assert majority([None]) is None
