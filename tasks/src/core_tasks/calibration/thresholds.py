"""Thresholds for accepting answers at a target error rate.

Thresholds are tested from the highest down, each by the exact bound of C. J. Clopper and E. S.
Pearson (Biometrika 26, 1934), and the first that fails ends the search: fixed-sequence testing,
which needs no correction for the number of tests (P. Bauer, Multiple testing in clinical trials,
Statistics in Medicine 10, 1991; for thresholds: A. Angelopoulos et al., Learn then test, 2021,
arXiv 2110.01052). A tenth of the risk is spent on one more test, of keeping every row, for answers
that are good enough whatever their probability. A search of all thresholds for the lowest that
passes would exceed the error rate more often than the confidence allows.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from core import validate
from core.errors import CalibrationError
from core_tasks.calibration.binomial import at_most, upper_bound

_ALL = 0.1  # of the risk, for the test of all rows
_ERRORS = 3  # that the first test allows, unless that takes more than _MOST of the rows
_LEAST, _MOST = 0.1, 1 / 3  # of the rows, kept by the first test

Answers = Sequence[tuple[float, bool]]
"""The answers to one row: the probability of each, and whether it is right."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Answers with a probability of at least ``value`` are kept.

    Of ``rows``, ``kept`` were, ``errors`` of them wrong; ``error_bound`` is the upper bound of
    their error rate at the requested ``confidence`` (Clopper-Pearson).
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
    """Return the lowest threshold that keeps ``error_rate``; None if no threshold is shown to.

    ``probabilities[i]`` is the probability of row i's answer, ``right[i]`` whether it is right. For
    independent rows from the same source, at most ``error_rate`` of the rows that the threshold
    keeps are wrong, with probability ``confidence`` over the draw of these rows. The rows must not
    have been used to fit the probabilities or to choose the prompt, and must not contain copies.
    Raises `CalibrationError` without any row, and for NaN.
    """
    if len(probabilities) != len(right):
        raise CalibrationError(
            f"probabilities and right must have equal lengths, got {len(probabilities)} and "
            f"{len(right)}."
        )
    rows = [[answer] for answer in zip(probabilities, right, strict=True)]
    return row_threshold_for(rows, error_rate, confidence)


def row_threshold_for(
    rows: Sequence[Answers], error_rate: float, confidence: float = 0.95
) -> Threshold | None:
    """Return the threshold for rows of several answers, like `threshold_for` for one each.

    A row is kept if one of its answers is kept, and wrong if one of these is wrong: rows are
    independent, answers to one text are not. Raises `CalibrationError` without any row, and for
    NaN.
    """
    rate = validate.real("error_rate", error_rate, 0.0, 1.0)
    sure = validate.real("confidence", confidence, 0.0, 1.0)
    if not rows:
        raise CalibrationError("A threshold requires at least one row.")
    if any(math.isnan(share) for row in rows for share, _ in row):
        raise CalibrationError("One of the probabilities is NaN. Omit the rows that failed.")

    # From these probabilities down, a row is kept, and wrong.
    kept_from = sorted((max(share for share, _ in row) for row in rows if row), reverse=True)
    wrong_from = sorted((_highest_wrong(row) for row in rows), reverse=True)
    passed = 0
    for accepted, allowed in _tests(kept_from, rate, sure):
        if _errors(wrong_from, kept_from[accepted - 1]) > allowed:
            break
        passed = accepted
    risk, everything = _ALL * (1 - sure), len(kept_from)
    if everything and rows_needed(_errors(wrong_from, kept_from[-1]), rate, risk) <= everything:
        passed = everything
    if not passed:
        return None
    value = kept_from[passed - 1]
    errors = _errors(wrong_from, value)
    return Threshold(value, len(rows), passed, errors, upper_bound(errors, passed, sure), sure)


def fewest_rows(error_rate: float, confidence: float = 0.95) -> float:
    """Return the minimum number of rows, all without an error, to find a threshold.

    It is 61 for 5 %, and infinite if no number suffices.
    """
    return rows_needed(0, error_rate, (1 - _ALL) * (1 - confidence))


def _errors(wrong_from: Sequence[float], value: float) -> int:
    """Return the number of wrong rows that a threshold keeps; ``wrong_from`` is descending."""
    return bisect_right(wrong_from, -value, key=lambda share: -share)


def _highest_wrong(row: Answers) -> float:
    return max((share for share, is_right in row if not is_right), default=-math.inf)


def _tests(kept_from: Sequence[float], rate: float, sure: float) -> Iterator[tuple[int, int]]:
    """Yield the tests in their order: the number of kept rows, and how many may be wrong.

    The order depends only on the probabilities, not on which answers are right. The first test
    keeps a tenth of the rows, or as many as may have three errors: to have none takes luck, and a
    failed test ends the search. Then follows a test for each further allowed error, and one of all
    rows.
    """
    count, risk = len(kept_from), (1 - _ALL) * (1 - sure)
    first = max(_LEAST * count, min(_MOST * count, rows_needed(_ERRORS, rate, risk)))
    allowed = 0
    while rows_needed(allowed + 1, rate, risk) <= first:
        allowed += 1

    accepted = 0
    needed = rows_needed(allowed, rate, risk)
    while accepted < count:
        accepted = int(min(needed, count))
        while accepted < count and kept_from[accepted] == kept_from[accepted - 1]:
            accepted += 1  # rows of one probability are kept together
        while rows_needed(allowed + 1, rate, risk) <= accepted:
            allowed += 1
        if rows_needed(allowed, rate, risk) <= accepted:
            yield accepted, allowed
        needed = rows_needed(allowed + 1, rate, risk)


@lru_cache(maxsize=1 << 16)
def rows_needed(errors: int, rate: float, risk: float) -> float:
    """Return the number of rows needed for a test at level ``risk`` to pass with these errors.

    The error rate is then below ``rate``, except with a probability of at most ``risk``. Infinite
    if no number of rows suffices.
    """
    if not rate or (risk <= 0 and rate < 1):
        return math.inf

    # The probability of so few errors falls with each row: double, then bisect.
    low, high = errors, errors + 1
    while at_most(errors, high, rate) > risk:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if at_most(errors, middle, rate) <= risk else (middle, high)
    return high
