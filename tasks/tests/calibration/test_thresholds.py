"""Bounds of shares against SciPy's values and exact fractions; the promise by simulation."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import accumulate

import pytest

from core.errors import CalibrationError, InvalidOptionError
from core_tasks.calibration import row_threshold_for, threshold_for, upper_bound
from core_tasks.calibration.binomial import at_most, beta_inc
from core_tasks.calibration.thresholds import fewest_rows


@pytest.mark.parametrize(
    ("a", "b", "x", "expected"),  # scipy.special.betainc of SciPy 1.17.1
    [
        (1, 1, 0.3, 0.3),
        (2.5, 0.5, 0.9, 0.48958974456442755),
        (10, 3, 0.5, 0.019287109375),
        (200, 7, 0.97, 0.5769857862540593),
        (5000, 120, 0.98, 0.9536231942658114),
        (1e6, 20, 0.99998, 0.4702226210535051),
        (3, 1e6, 2e-06, 0.3233246665001949),
        (0.5, 0.5, 1e-08, 6.366197734286143e-05),
        (2, 3, 0.0, 0.0),
        (2, 3, 1.0, 1.0),
    ],
)
def test_the_incomplete_beta_function_is_scipys(
    a: float, b: float, x: float, expected: float
) -> None:
    assert beta_inc(a, b, x) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("errors", "rows", "confidence", "expected"),  # scipy.stats.beta.ppf(c, k + 1, n - k)
    [
        (0, 1, 0.95, 0.95),
        (0, 59, 0.95, 0.04950760988822693),
        (1, 10, 0.95, 0.39416330243650466),
        (5, 100, 0.95, 0.1022533776432745),
        (3, 20, 0.9, 0.3041868114074787),
        (50, 1000, 0.99, 0.06840489369563105),
        (9, 10, 0.95, 0.9948838031081763),
        (400, 100000, 0.95, 0.004344218003761409),
        (0, 1000000, 0.999, 6.907731420495575e-06),
        (4, 4, 0.95, 1.0),
        (0, 0, 0.95, 1.0),
    ],
)
def test_the_upper_bound_is_scipys(
    errors: int, rows: int, confidence: float, expected: float
) -> None:
    assert upper_bound(errors, rows, confidence) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("errors", "rows"), [(0, 5), (2, 7), (11, 40), (39, 40), (3, 300)])
def test_the_binomials_sum_is_exact(errors: int, rows: int) -> None:
    for rate in (Fraction(1, 64), Fraction(1, 4), Fraction(7, 8)):
        terms = (math.comb(rows, k) * rate**k * (1 - rate) ** (rows - k) for k in range(errors + 1))
        assert at_most(errors, rows, float(rate)) == pytest.approx(float(sum(terms)), abs=1e-12)


@cache
def most_allowed(most_rows: int, rate: float, risk: float) -> list[int]:
    """The most errors that a test at this level passes, by the rows; -1 where none is too many."""
    allowed = [-1]
    for rows in range(1, most_rows + 1):
        more = upper_bound(allowed[-1] + 1, rows, 1 - risk) <= rate
        allowed.append(allowed[-1] + more)
    return allowed


@pytest.mark.parametrize("seed", range(24))
def test_thresholds_are_tested_from_the_top_until_one_fails(seed: int) -> None:
    """A second reckoning, with every bound computed anew: 9 % of risk, and 1 % for all rows."""
    draw, count, rate = random.Random(seed), 200, 0.15
    shares = [round(draw.uniform(0.3, 1), 2 if seed % 2 else 9) for _ in range(count)]
    right = [draw.random() < share ** (0.15 + seed / 80) for share in shares]
    ranked = sorted(zip(shares, right, strict=True), reverse=True)

    # The counts at which one error more is allowed, from the one that allows three.
    allowed = most_allowed(count, rate, 0.09)
    counts = [
        accepted for accepted in range(1, count + 1) if allowed[accepted] > allowed[accepted - 1]
    ]
    counts = [accepted for accepted in counts if accepted >= allowed.index(3)]
    passed = None
    for least in [*counts, count]:
        accepted = sum(share >= ranked[least - 1][0] for share in shares)  # equal ones with it
        errors = sum(not is_right for _, is_right in ranked[:accepted])
        if errors > allowed[accepted]:
            break
        passed = ranked[accepted - 1][0], accepted, errors
    if right.count(False) <= most_allowed(count, rate, 0.01)[count]:
        passed = ranked[-1][0], count, right.count(False)

    threshold = threshold_for(shares, right, rate, 0.9)
    if passed is None:
        assert threshold is None
        return
    assert threshold is not None
    assert (threshold.value, threshold.kept, threshold.errors) == passed
    assert threshold.error_bound == upper_bound(threshold.errors, threshold.kept, 0.9) <= rate
    assert threshold.coverage == threshold.kept / count


RUNS, MOST_BROKEN = 1000, 60  # 5 % of the runs, and room for the luck of a thousand


def just_above(draw: random.Random) -> tuple[float, float]:
    """A confidence that says nothing of an error rate just above the wanted one."""
    return draw.random(), 0.0501


def calibrated(draw: random.Random) -> tuple[float, float]:
    """A confidence that is how likely the answer is right; a third of all are below 85 %."""
    confidence = 0.5 + 0.5 * draw.random() ** (1 / 3)
    return confidence, 1 - confidence


def misleading(draw: random.Random) -> tuple[float, float]:
    """A confidence that is higher, the more answers are wrong."""
    confidence = draw.random()
    return confidence, 0.045 + 0.02 * confidence


def risk_of(kind: Callable[[random.Random], tuple[float, float]]) -> Callable[[float], float]:
    """The error rate of what a threshold keeps, from two hundred thousand rows."""
    draw = random.Random(99)
    rows = sorted((kind(draw) for _ in range(200_000)), reverse=True)
    shares, wrong = [-share for share, _ in rows], [*accumulate(error for _, error in rows)]

    def risk(threshold: float) -> float:
        accepted = bisect_right(shares, -threshold)
        return wrong[accepted - 1] / accepted if accepted else 0.0

    return risk


@pytest.mark.parametrize("kind", [just_above, calibrated, misleading])
@pytest.mark.parametrize("count", [200, 1000])
def test_a_promise_of_95_percent_is_kept_in_95_percent_of_the_runs(
    count: int, kind: Callable[[random.Random], tuple[float, float]]
) -> None:
    draw, risk = random.Random(count), risk_of(kind)
    broken = 0
    for _ in range(RUNS):
        rows = [kind(draw) for _ in range(count)]
        right = [draw.random() >= error for _, error in rows]
        threshold = threshold_for([share for share, _ in rows], right, 0.05)
        broken += threshold is not None and risk(threshold.value) > 0.05
    assert broken <= MOST_BROKEN


def test_confidence_that_tells_right_from_wrong_is_worth_rows() -> None:
    """What is promised is not kept by promising nothing."""
    draw, coverage = random.Random(5), 0.0
    for _ in range(200):
        rows = [calibrated(draw) for _ in range(1000)]
        right = [draw.random() >= error for _, error in rows]
        threshold = threshold_for([share for share, _ in rows], right, 0.05)
        coverage += 0.0 if threshold is None else threshold.coverage / 200
    assert 0.25 < coverage < 0.52  # the best threshold keeps 52 %


def test_a_row_of_several_answers_is_wrong_where_one_of_them_is() -> None:
    draw = random.Random(2)
    rows, singles = [], []
    for n in range(300):
        wrong = n % 100 == 7
        first, second = draw.uniform(0.6, 1), draw.uniform(0.1, 0.6)
        rows.append([(first, True), (second, not wrong)])
        singles.append((first, True))
    assert row_threshold_for([[one] for one in singles], 0.05) == threshold_for(
        [share for share, _ in singles], [True] * 300, 0.05
    )
    threshold = row_threshold_for(rows, 0.05)
    assert threshold is not None
    assert threshold.errors == sum(
        any(share >= threshold.value and not right for share, right in row) for row in rows
    )
    assert threshold.kept == sum(any(share >= threshold.value for share, _ in row) for row in rows)

    # Three answers of each row that go wrong together are one row that is wrong, and not three.
    together = [[(draw.random(), n % 10 != 3)] * 3 for n in range(60)]
    assert row_threshold_for(together, 0.05) is None


def test_no_threshold_where_the_rows_are_too_few_or_wrong() -> None:
    assert fewest_rows(0.05) == 61  # the first with 0.95 ** n <= 0.045
    assert (fewest_rows(0.0), fewest_rows(0.5, 1.0)) == (math.inf, math.inf)
    assert threshold_for([0.9] * 60, [True] * 60, 0.05) is None
    threshold = threshold_for([0.9] * 61, [True] * 61, 0.05)
    assert threshold is not None
    assert (threshold.value, threshold.coverage, threshold.errors) == (0.9, 1.0, 0)
    assert threshold_for([0.9, 0.8], [False, False], 1.0) is None
    assert threshold_for([0.9], [True], 0.0) is None
    assert threshold_for([0.9], [False], 0.5, 0.0) is None
    assert threshold_for([0.9] * 9999, [True] * 9999, 0.5, 1.0) is None


def test_answers_that_are_good_enough_are_all_kept_whatever_their_probability() -> None:
    """The most probable ones are wrong here, so that the search from the top ends at once."""
    shares = [1 - n / 1000 for n in range(1000)]
    threshold = threshold_for(shares, [n >= 15 for n in range(1000)], 0.05)
    assert threshold is not None
    assert (threshold.kept, threshold.errors) == (1000, 15)
    assert threshold_for(shares, [n >= 45 for n in range(1000)], 0.05) is None


def test_what_is_no_row_or_no_rate_is_refused() -> None:
    with pytest.raises(CalibrationError, match="requires at least one row"):
        threshold_for([], [], 0.05)
    with pytest.raises(CalibrationError, match="1 and 2"):
        threshold_for([0.5], [True, False], 0.05)
    with pytest.raises(CalibrationError, match="NaN"):
        threshold_for([math.nan], [True], 0.05)
    with pytest.raises(InvalidOptionError, match="error_rate"):
        threshold_for([0.5], [True], 5)
    with pytest.raises(InvalidOptionError, match="confidence"):
        threshold_for([0.5], [True], 0.05, 95)
