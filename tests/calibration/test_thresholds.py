"""The bounds of shares against SciPy's stored values and exact fractions; thresholds by search."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

from core.calibration import threshold_for, upper_bound
from core.calibration.binomial import at_most, beta_inc
from core.errors import CalibrationError, InvalidOptionError


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


@pytest.mark.parametrize("seed", range(6))
def test_the_threshold_is_the_smallest_whose_bound_is_low_enough(seed: int) -> None:
    draw = random.Random(seed)
    shares = [round(draw.uniform(0.3, 1), 2) for _ in range(200)]
    right = [draw.random() < share**0.3 for share in shares]
    good = []
    for value in sorted(set(shares)):
        kept = [is_right for share, is_right in zip(shares, right, strict=True) if share >= value]
        if upper_bound(kept.count(False), len(kept), 0.9) <= 0.15:
            good.append((value, len(kept), kept.count(False)))
    found = threshold_for(shares, right, 0.15, 0.9)
    if not good:
        assert found is None
        return
    assert found is not None
    assert (found.value, found.kept, found.errors) == good[0]
    assert found.error_bound == upper_bound(found.errors, found.kept, 0.9) <= 0.15
    assert found.coverage == found.kept / 200


def test_no_threshold_where_the_rows_are_too_few_or_wrong() -> None:
    assert threshold_for([0.9] * 58, [True] * 58, 0.05) is None  # the bound is 1 - 0.05 ** (1 / n)
    found = threshold_for([0.9] * 59, [True] * 59, 0.05)
    assert found is not None
    assert (found.value, found.coverage, found.errors) == (0.9, 1.0, 0)
    assert threshold_for([0.9, 0.8], [False, False], 1.0) is None
    assert threshold_for([0.9], [True], 0.0) is None
    assert threshold_for([0.9], [False], 0.5, 0.0) is None


def test_what_is_no_row_or_no_rate_is_refused() -> None:
    with pytest.raises(CalibrationError, match="0 and 0"):
        threshold_for([], [], 0.05)
    with pytest.raises(CalibrationError, match="1 and 2"):
        threshold_for([0.5], [True, False], 0.05)
    with pytest.raises(CalibrationError, match="NaN"):
        threshold_for([math.nan], [True], 0.05)
    with pytest.raises(InvalidOptionError, match="error_rate"):
        threshold_for([0.5], [True], 5)
    with pytest.raises(InvalidOptionError, match="confidence"):
        threshold_for([0.5], [True], 0.05, 95)
