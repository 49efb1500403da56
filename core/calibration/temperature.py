"""Level L1, one number: the temperature that makes gold labels likeliest.

C. Guo et al., On calibration of modern neural networks, ICML 2017, section 4.2. A temperature
changes no answer; above 1 the model had been too sure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from core.calibration.adjustment import Adjustment
from core.calibration.logspace import Row, checked_gold, checked_rows
from core.errors import CalibrationError
from core.labels import softmax

COLDEST, HOTTEST = 0.05, 100.0
"""The search stays within: rows that are all right have no best temperature but 0."""
_HALVINGS = 100  # of an interval of 20: below the spacing of floats, wherever it ends


def fit_temperature(
    rows: Sequence[Row], gold: Sequence[int], base: Adjustment | None = None
) -> Adjustment:
    """The adjustment ``base`` with the temperature of least negative log-likelihood.

    ``gold[i]`` is the place of row i's label. The likelihood is concave in ``b = 1 / temperature``,
    so its slope, ``sum(gold's log-probability - their mean under b)``, has one zero, which halving
    finds. Raises `CalibrationError` for one row, a gold label that is impossible in its row, and
    rows that say the same of all labels.
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
    """The derivative of the log-likelihood by ``b``."""
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
                f"Row {place}'s gold label is impossible for the model, and no temperature mends "
                "that. Check the label, or leave the row out."
            )
    if all(min(row) == max(row) for row in scores):
        raise CalibrationError(
            "The model says the same of all labels in every row: there is nothing to fit. Try "
            "another template."
        )
