"""Level L1, temperature: the one number that makes the gold labels likeliest.

C. Guo et al., On calibration of modern neural networks, ICML 2017, section 4.2. A temperature
does not change answers; above 1 the model was overconfident.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from core.errors import CalibrationError
from core.kit.labels import softmax
from core_tasks.calibration.adjustment import Adjustment
from core_tasks.calibration.logspace import Row, checked_gold, checked_rows

COLDEST, HOTTEST = 0.05, 100.0
"""Limits of the search: for rows that are all right, the best temperature is 0."""
_HALVINGS = 100  # of an interval of 20: below the spacing of floats, wherever it ends


def fit_temperature(
    rows: Sequence[Row], gold: Sequence[int], base: Adjustment | None = None
) -> Adjustment:
    """Return the adjustment ``base`` with the temperature of least negative log-likelihood.

    ``gold[i]`` is the index of row i's label. The likelihood is concave in ``b = 1 / temperature``,
    so its slope, ``sum(gold's log-probability - their mean under b)``, has one zero, found by
    bisection. Raises `CalibrationError` for one row, a gold label with probability 0 in its row,
    and rows in which all labels are equal.
    """
    start = base or Adjustment()
    shifted = replace(start, temperature=1.0, knots=())
    scores = [shifted(row) for row in checked_rows(rows, 2, "A temperature")]
    places = checked_gold(gold, scores)
    _check(scores, places)

    low, high = 1 / HOTTEST, 1 / COLDEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high:
            break  # no float is between them
        if _slope(scores, places, middle) > 0:  # surer is likelier still
            low = middle
        else:
            high = middle
    return replace(shifted, temperature=1 / ((low + high) / 2))


def _slope(scores: Sequence[Row], gold: Sequence[int], b: float) -> float:
    """Return the derivative of the log-likelihood by ``b``."""
    slopes = []
    for row, label in zip(scores, gold, strict=True):
        shares = softmax([b * value for value in row])
        # An impossible label has no share in the mean, however far down it is.
        mean = math.fsum([share * value for share, value in zip(shares, row, strict=True) if share])
        slopes.append(row[label] - mean)
    return math.fsum(slopes)


def _check(scores: Sequence[Row], gold: Sequence[int]) -> None:
    for place, (row, label) in enumerate(zip(scores, gold, strict=True)):
        if row[label] == -math.inf:
            raise CalibrationError(
                f"Row {place}: the model gives the gold label probability 0, which no temperature "
                "can fix. Check the label, or omit the row."
            )
    if all(min(row) == max(row) for row in scores):
        raise CalibrationError(
            "All labels have equal probability in every row: there is nothing to fit. Try another "
            "template."
        )
