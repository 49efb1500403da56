"""What is done to a row of labels' log-probabilities: a prior off, a temperature, a ladder.

The three stand in this order, and each may be absent. The prior is fitted without labels, the
temperature and the ladder on rows whose labels are known; either of these may stand on a prior.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from core.calibration.logspace import Row, checked_row, log_sum, normalised
from core.errors import CalibrationError
from core.system.limited_files import shown

MOST_PRIOR = 1e9
"""The largest number of a prior: further off, what a row says of the labels would be lost in it."""

COLDEST_KNOWN, HOTTEST_KNOWN = 1e-6, 1e6
"""The temperatures that a row of log-probabilities can be divided by without overflow."""

LEAST_SHARE = 1e-12
"""How near to 0 and 1 a ladder comes at most: nobody has the rows to know it nearer (Laplace)."""

_AHEAD = 1e-9  # of the second, so that rounding does not change the answer
Knots = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Adjustment:
    """A change of log-probabilities that depends on nothing but the row.

    ``prior`` holds the logarithm of what is taken off, one for each label, or nothing.
    ``temperature`` divides. ``knots`` are the steps of a rising ladder from the best label's
    probability to its share of right answers, ``(probability, share)``.
    """

    prior: tuple[float, ...] = ()
    temperature: float = 1.0
    knots: Knots = ()

    def __post_init__(self) -> None:
        if not all(abs(value) <= MOST_PRIOR for value in self.prior):
            raise CalibrationError(
                f"The prior {shown(self.prior)} holds a number that is not within "
                f"{MOST_PRIOR:g} of 0. Fit it again."
            )
        if not COLDEST_KNOWN <= self.temperature <= HOTTEST_KNOWN:
            raise CalibrationError(
                f"The temperature {shown(self.temperature)} is not a number from "
                f"{COLDEST_KNOWN:g} to {HOTTEST_KNOWN:g}. Fit it again."
            )
        _check_knots(self.knots)

    def __call__(self, row: Row) -> list[float]:
        """The adjusted log-probabilities, normalised. Raises `CalibrationError` for NaN."""
        values = checked_row(row, len(self.prior) or len(row))
        if self.prior:
            values = [value - prior for value, prior in zip(values, self.prior, strict=True)]
        shares = normalised([value / self.temperature for value in values])
        return on_ladder(shares, self.knots) if self.knots else shares


def on_ladder(row: Row, knots: Knots) -> list[float]:
    """A normalised row whose best label gets what the ladder says, and the others what is left.

    The others keep their odds among each other: ``p_i -> p_i (1 - q) / (1 - p_best)``. Only the
    best label's probability is calibrated (C. Guo et al., On calibration of modern neural networks,
    ICML 2017; C. Gupta and A. Ramdas, Top-label calibration and multiclass-to-binary reductions,
    ICLR 2022), and the answer stays: where the ladder would put the best label below the second,
    it gets a hair more than that. Labels that share the best place share alike, n of them 1/n each
    at most, so that the order of the labels has no say.
    """
    best = max(row)
    others = [value for value in row if value != best]
    tops = len(row) - len(others)
    if not others:
        return [*row]

    # The best label's share: at least the second's then, and of several each its part.
    left = log_sum(others)
    odds = math.exp(max(others) - left) if left > -math.inf else 1 / len(others)
    share = min(interpolated(knots, math.exp(best)), knots[-1][1] / tops)
    share = max(share, odds / (1 + tops * odds) * (1 + _AHEAD))

    # Others that had nothing have equal parts of what is theirs now.
    said, rest = math.log(share), math.log1p(-tops * share)
    equal = rest - math.log(len(others))
    changed = (equal if left == -math.inf else value - left + rest for value in row)
    pairs = zip(row, changed, strict=True)
    return normalised([said if value == best else other for value, other in pairs])


def interpolated(knots: Knots, x: float) -> float:
    """The ladder at ``x``: straight between two knots, and level beyond the first and the last."""
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
            f"The ladder {shown(knots)} does not rise from probability to probability, with shares "
            f"that keep {LEAST_SHARE:g} away from 0 and 1. Fit it again."
        )
