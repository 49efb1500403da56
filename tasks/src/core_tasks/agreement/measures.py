"""The measures of agreement, each a function of counts, with the source of its formula.

A measure that no row defines is None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

Z_95 = 1.959963984540054
"""The normal distribution's quantile at 0.975."""


def share(part: float, whole: float) -> float | None:
    """Return ``part / whole``; None if ``whole`` is 0."""
    return part / whole if whole else None


def wilson(right: int, rows: int) -> tuple[float, float] | None:
    """Return the 95 % score interval of a share: within 0 and 1, and valid for few rows too.

    ``(p + z^2/2n ± z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)``: E. B. Wilson, Probable inference,
    the law of succession, and statistical inference, JASA 22 (1927), 209-212.
    """
    if not rows:
        return None
    p, z = right / rows, Z_95
    square = z * z / rows
    middle = p + square / 2
    reach = z * math.sqrt(p * (1 - p) / rows + square / (4 * rows))
    low, high = (middle - reach) / (1 + square), (middle + reach) / (1 + square)
    # Exact at the ends, where rounding would leave a small difference.
    return (0.0 if right == 0 else max(0.0, low)), (1.0 if right == rows else min(1.0, high))


@dataclass(frozen=True, slots=True)
class LabelMeasures:
    """One label: ``support`` rows have it as gold, ``answered`` rows got it, ``hits`` both.

    Precision is 0 if no row got it, recall is 0 if no row has it, as in scikit-learn's
    ``precision_recall_fscore_support`` with ``zero_division=0``.
    """

    support: int
    answered: int
    hits: int

    @property
    def precision(self) -> float:
        """The share of the rows that got it that have it."""
        return share(self.hits, self.answered) or 0.0

    @property
    def recall(self) -> float:
        """The share of the rows that have it, including those without an answer, that got it."""
        return share(self.hits, self.support) or 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of both: ``2 hits / (support + answered)`` (van Rijsbergen, 1979)."""
        return share(2 * self.hits, self.support + self.answered) or 0.0


def by_label(
    confusion: Mapping[str, Mapping[str, int]], unanswered: Mapping[str, int]
) -> dict[str, LabelMeasures]:
    """Return the measures of each label that is a gold label or an answer, sorted by name."""
    answered: dict[str, int] = {}
    for answers in confusion.values():
        for label, rows in answers.items():
            answered[label] = answered.get(label, 0) + rows
    return {
        label: LabelMeasures(
            sum(confusion.get(label, {}).values()) + unanswered.get(label, 0),
            answered.get(label, 0),
            confusion.get(label, {}).get(label, 0),
        )
        for label in sorted({*confusion, *unanswered, *answered})
    }


def macro_f1(labels: Mapping[str, LabelMeasures]) -> float | None:
    """Return the mean of F1 over the labels, like scikit-learn's ``f1_score(average="macro")``."""
    return share(math.fsum(measures.f1 for measures in labels.values()), len(labels))


def brier(probabilities: Mapping[str, float], gold: str) -> float:
    """Return ``sum((p_label - [label is gold])^2)``: 0 for certain and right, 2 for wrong.

    G. W. Brier, Verification of forecasts expressed in terms of probability, Monthly Weather Review
    78 (1950), 1-3. A gold label that is not one of the labels has the probability 0.
    """
    apart = [(p - (label == gold)) ** 2 for label, p in probabilities.items()]
    return math.fsum(apart) + (gold not in probabilities)
