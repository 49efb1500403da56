"""Adjustment of a row of labels' log-probabilities: prior, temperature, step function.

The three are applied in this order, and each is optional. The prior is fitted without labels, the
temperature or the step function on rows with gold labels, with or without a prior.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from core.errors import CalibrationError
from core.system.limited_files import shown
from core_tasks.calibration.logspace import Row, checked_row, log_sum, normalised

MOST_PRIOR = 1e9
"""The largest value of a prior: beyond it, rounding would erase the values of a row."""

COLDEST_KNOWN, HOTTEST_KNOWN = 1e-6, 1e6
"""The temperatures that a row of log-probabilities can be divided by without overflow."""

LEAST_SHARE = 1e-12
"""Minimum distance of a step function from 0 and 1, which no number of rows exceeds (Laplace)."""

_AHEAD = 1e-9  # lead over the second, so that rounding does not change the answer
Knots = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Adjustment:
    """A change of log-probabilities that depends only on the row.

    ``prior`` has the logarithm of the subtracted prior, one for each label, or nothing.
    ``temperature`` divides. ``knots`` are the points of a rising step function from the best
    label's probability to its accuracy, ``(probability, share)``.
    """

    prior: tuple[float, ...] = ()
    temperature: float = 1.0
    knots: Knots = ()

    def __post_init__(self) -> None:
        if not all(abs(value) <= MOST_PRIOR for value in self.prior):
            raise CalibrationError(
                f"The prior {shown(self.prior)} has a number that is not within "
                f"{MOST_PRIOR:g} of 0. Fit it again."
            )
        if not COLDEST_KNOWN <= self.temperature <= HOTTEST_KNOWN:
            raise CalibrationError(
                f"The temperature {shown(self.temperature)} is not a number from "
                f"{COLDEST_KNOWN:g} to {HOTTEST_KNOWN:g}. Fit it again."
            )
        _check_knots(self.knots)

    def __call__(self, row: Row) -> list[float]:
        """Return the adjusted log-probabilities, normalised. Raises `CalibrationError` for NaN."""
        values = checked_row(row, len(self.prior) or len(row))
        if self.prior:
            values = [value - prior for value, prior in zip(values, self.prior, strict=True)]
        shares = normalised([value / self.temperature for value in values])
        return on_ladder(shares, self.knots) if self.knots else shares


def on_ladder(row: Row, knots: Knots) -> list[float]:
    """Return a normalised row with the step function applied to the best label's probability.

    The others keep their odds among each other: ``p_i -> p_i (1 - q) / (1 - p_best)``. Only the
    best label's probability is calibrated (C. Guo et al., On calibration of modern neural networks,
    ICML 2017; C. Gupta and A. Ramdas, Top-label calibration and multiclass-to-binary reductions,
    ICLR 2022), and the answer does not change: if the step function would put the best label below
    the second, it stays slightly above it. Labels tied for the best get equal shares, at most 1/n
    each for n of them, so that the order of the labels does not matter.
    """
    best = max(row)
    others = [value for value in row if value != best]
    tops = len(row) - len(others)
    if not others:
        return [*row]

    # The best label's share: at least the second's new share; tied labels share equally.
    left = log_sum(others)
    odds = math.exp(max(others) - left) if left > -math.inf else 1 / len(others)
    share = min(interpolated(knots, math.exp(best)), knots[-1][1] / tops)
    share = max(share, odds / (1 + tops * odds) * (1 + _AHEAD))

    # If the others had no probability, they share the rest equally.
    best_logprob, rest = math.log(share), math.log1p(-tops * share)
    equal = rest - math.log(len(others))
    changed = (equal if left == -math.inf else value - left + rest for value in row)
    pairs = zip(row, changed, strict=True)
    return normalised([best_logprob if value == best else other for value, other in pairs])


def interpolated(knots: Knots, x: float) -> float:
    """Return the step function at ``x``: linear between knots, constant beyond them."""
    place = bisect_right(knots, x, key=lambda knot: knot[0])
    if place == 0:
        return knots[0][1]
    if place == len(knots):
        return knots[-1][1]
    (low, a), (high, b) = knots[place - 1], knots[place]
    return a + (b - a) * (x - low) / (high - low)


def _check_knots(knots: Sequence[tuple[float, float]]) -> None:
    """Raise `CalibrationError` unless both numbers rise, and no share reaches 0 or 1."""
    inside = all(0 <= x <= 1 and LEAST_SHARE <= y <= 1 - LEAST_SHARE for x, y in knots)
    if not inside or any(a >= c or b > d for (a, b), (c, d) in pairwise(knots)):
        raise CalibrationError(
            f"The step function {shown(knots)} does not rise with the probability, or has shares "
            f"closer than {LEAST_SHARE:g} to 0 or 1. Fit it again."
        )
