"""Which answers to keep, so that no more than a wanted share of them is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from core import validate
from core.calibration.binomial import at_most, upper_bound
from core.errors import CalibrationError


@dataclass(frozen=True, slots=True)
class Threshold:
    """Answers with a probability of at least ``value`` are kept.

    Of ``rows``, ``kept`` were, ``errors`` of them wrong; ``error_bound`` is how large their error
    rate may be, at most, at the ``confidence`` that was asked for (Clopper-Pearson).
    """

    value: float
    rows: int
    kept: int
    errors: int
    error_bound: float
    confidence: float

    @property
    def coverage(self) -> float:
        """The share of the rows that is kept."""
        return self.kept / self.rows


def threshold_for(
    probabilities: Sequence[float],
    right: Sequence[bool],
    error_rate: float,
    confidence: float = 0.95,
) -> Threshold | None:
    """The smallest threshold whose error bound is at most ``error_rate``; None where none is.

    ``probabilities[i]`` is that of row i's answer and ``right[i]`` whether the answer is right.
    Looking for the smallest of many thresholds flatters it a little: what it holds is known from
    rows that had no part in finding it. Raises `CalibrationError` for no row, and for NaN.
    """
    rate = validate.real("error_rate", error_rate, 0.0, 1.0)
    sure = validate.real("confidence", confidence, 0.0, 1.0)
    if not probabilities or len(probabilities) != len(right):
        raise CalibrationError(
            f"A threshold takes rows with a probability and whether it is right; these are "
            f"{len(probabilities)} and {len(right)}."
        )
    if any(math.isnan(each) for each in probabilities):
        raise CalibrationError("One of the probabilities is NaN. Leave out rows that failed.")

    # From the highest probability down; the last that is good enough is the smallest threshold.
    kept = errors = 0
    found: tuple[float, int, int] | None = None
    ranked = sorted(zip(probabilities, right, strict=True), reverse=True)
    for value, same in groupby(ranked, key=lambda row: row[0]):
        wrong = [not is_right for _, is_right in same]
        kept, errors = kept + len(wrong), errors + sum(wrong)
        # The bound is at most the rate where so few errors are that improbable at the rate.
        if errors < kept and at_most(errors, kept, rate) <= 1 - sure:
            found = value, kept, errors
    if found is None:
        return None
    value, kept, errors = found
    bound = upper_bound(errors, kept, sure)
    return Threshold(value, len(ranked), kept, errors, bound, sure)
