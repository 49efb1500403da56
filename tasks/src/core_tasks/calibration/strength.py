"""Level L1, strength and temperature together: the two that make the gold labels likeliest.

A prior's default strength suits no prompt in particular, and a temperature fitted after a prior of
the wrong strength is wrong too. In ``b = 1 / temperature`` and ``c = strength / temperature`` the
log-likelihood is concave, as it is a logistic regression with two weights, and Newton's method
finds its maximum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from core_tasks.calibration.adjustment import Adjustment
from core_tasks.calibration.logspace import Row, checked_gold, checked_rows, log_sum
from core_tasks.calibration.temperature import fit_temperature

STRONGEST = 3.0
"""The largest factor of a prior: a larger one is fitted to chance."""
_STEPS = 50
_HALVINGS = 30
_ENOUGH = 1e-12  # relative size of the last step
_ROUNDING = 1e-13  # of a log-likelihood
_RIDGE = 1e-9  # per row, where a direction does not change the likelihood

Weights = tuple[float, float]  # b and c


def fit_strength(
    rows: Sequence[Row], gold: Sequence[int], base: Adjustment | None = None
) -> Adjustment:
    """Return ``base`` with its prior multiplied by a factor from 0 to 3, and a temperature.

    Without a prior it is `fit_temperature`, and it raises like that.
    """
    start = base or Adjustment()
    if not start.prior:
        return fit_temperature(rows, gold, start)
    scores = checked_rows(rows, 2, "A temperature")
    places = checked_gold(gold, scores)
    b, c = _likeliest(scores, places, start.prior) if _usable(scores) else (1.0, 1.0)
    factor = min(max(c / b, 0.0), STRONGEST) if b > 0 else 0.0
    scaled = tuple(factor * value for value in start.prior)
    return fit_temperature(rows, gold, replace(start, prior=scaled))


def _usable(rows: Sequence[Row]) -> bool:
    return all(-math.inf < value < math.inf for row in rows for value in row)


def _likeliest(rows: Sequence[Row], gold: Sequence[int], prior: Sequence[float]) -> Weights:
    """Return the weights of the maximum, by Newton's method with a line search."""
    weights = 1.0, 1.0
    value = _likelihood(rows, gold, prior, weights)
    for _ in range(_STEPS):
        step = _newton(rows, gold, prior, weights)
        for _ in range(_HALVINGS):
            tried = weights[0] + step[0], weights[1] + step[1]
            better = _likelihood(rows, gold, prior, tried)
            if better >= value - _ROUNDING * abs(value):
                break
            step = step[0] / 2, step[1] / 2
        else:
            return weights
        weights, value = tried, better
        if max(map(abs, step)) <= _ENOUGH * max(map(abs, weights)):
            break
    return weights


def _likelihood(
    rows: Sequence[Row], gold: Sequence[int], prior: Sequence[float], weights: Weights
) -> float:
    likelihoods = []
    for row, label in zip(rows, gold, strict=True):
        scores = _scores(row, prior, weights)
        likelihoods.append(scores[label] - log_sum(scores))
    return math.fsum(likelihoods)


def _newton(
    rows: Sequence[Row], gold: Sequence[int], prior: Sequence[float], weights: Weights
) -> Weights:
    """Return Newton's step: the inverse covariance of both features, times the gradient.

    Sums are exact, so that the order of rows and labels does not matter.
    """
    terms = []
    for row, label in zip(rows, gold, strict=True):
        scores = _scores(row, prior, weights)
        total = log_sum(scores)
        shares = [math.exp(score - total) for score in scores]
        mean_b, mean_c = _mean(shares, row), _mean(shares, prior)
        off_b, off_c = [value - mean_b for value in row], [value - mean_c for value in prior]
        covariances = (
            _mean(shares, [one * other for one, other in zip(*pair, strict=True)])
            for pair in ((off_b, off_b), (off_b, off_c), (off_c, off_c))
        )
        terms.append((off_b[label], -off_c[label], *covariances))

    slope_b, slope_c, bb, bc, cc = map(math.fsum, zip(*terms, strict=True))
    ridge = _RIDGE * len(rows)
    bb, bc, cc = bb + ridge, -bc, cc + ridge
    determinant = bb * cc - bc * bc
    return (cc * slope_b - bc * slope_c) / determinant, (bb * slope_c - bc * slope_b) / determinant


def _mean(shares: Sequence[float], values: Sequence[float]) -> float:
    return math.fsum([share * value for share, value in zip(shares, values, strict=True)])


def _scores(row: Row, prior: Sequence[float], weights: Weights) -> list[float]:
    b, c = weights
    return [b * value - c * p for value, p in zip(row, prior, strict=True)]
