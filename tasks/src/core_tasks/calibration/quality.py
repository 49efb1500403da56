"""Quality of probabilities, on rows with gold labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from core_tasks.agreement import Agreement
from core_tasks.calibration.logspace import Row, checked_gold, checked_rows, normalised


@dataclass(frozen=True, slots=True)
class Quality:
    """Accuracy, calibration error (95 %), Brier's score (`core_tasks.agreement`), and ``nll``.

    ``nll`` is the mean of ``-log p(gold)``, infinite if a gold label has probability 0.
    """

    rows: int
    accuracy: float
    calibration_error: float
    calibration_error_interval: tuple[float, float]
    brier: float
    nll: float


def quality(rows: Sequence[Row], gold: Sequence[int]) -> Quality:
    """Return the quality of labels' log-probabilities.

    Raises `CalibrationError` without any row, and for NaN.
    """
    scores = [normalised(row) for row in checked_rows(rows, 1, "A measure of quality")]
    places = checked_gold(gold, scores)

    agreement = Agreement()
    for row, label in zip(scores, places, strict=True):
        answer = max(range(len(row)), key=row.__getitem__)
        shares = {str(place): math.exp(value) for place, value in enumerate(row)}
        agreement.add(str(label), str(answer), probabilities=shares)
    report = agreement.to_dict()
    low, high = report["calibration_error_interval"]

    losses = [-row[label] for row, label in zip(scores, places, strict=True)]
    return Quality(
        rows=len(scores),
        accuracy=report["accuracy"],
        calibration_error=report["calibration_error"],
        calibration_error_interval=(low, high),
        brier=report["brier"],
        nll=math.fsum(losses) / len(losses),
    )
