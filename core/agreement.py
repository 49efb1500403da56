"""How well labels agree with the right ones: counted row by row, in memory of the labels' number.

Accuracy with its 95 % interval (Wilson, J. Am. Stat. Assoc. 22, 1927), precision, recall and F1 of
each label, the confusion table, and the expected calibration error: how far the probability of the
chosen labels is from the share of them that is right, over 15 bins (Guo et al., arXiv:1706.04599).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass

BINS = 15
_Z = 1.959963984540054  # of the normal distribution, for 95 %


@dataclass(frozen=True, slots=True)
class LabelAgreement:
    """Of one label: the share of its choices that is right, the share of its rows that got it."""

    precision: float
    recall: float
    f1: float
    rows: int


@dataclass(slots=True)
class Bin:
    """Choices of nearly one probability: how many, their probabilities' sum, how many right."""

    rows: int = 0
    probability: float = 0.0
    right: int = 0


class Agreement:
    """Counts choices beside the right labels. A row without a choice counts as not answered."""

    def __init__(self) -> None:
        self.bins = [Bin() for _ in range(BINS)]
        self.unanswered: Counter[str] = Counter()
        self._pairs: Counter[tuple[str, str]] = Counter()

    def add(self, gold: str, label: str | None, probability: float | None = None) -> None:
        """Count a row whose right label is ``gold``. ``probability`` is that of the choice."""
        if label is None:
            self.unanswered[gold] += 1
            return
        self._pairs[gold, label] += 1
        if probability is not None:
            place = self.bins[min(int(probability * BINS), BINS - 1)]
            place.rows += 1
            place.probability += probability
            place.right += label == gold

    @property
    def rows(self) -> int:
        """Rows that were answered."""
        return self._pairs.total()

    @property
    def right(self) -> int:
        """Rows with the right label."""
        return sum(count for (gold, label), count in self._pairs.items() if gold == label)

    @property
    def accuracy(self) -> float | None:
        """The share of the answered rows that is right; None where none was answered."""
        return self.right / self.rows if self.rows else None

    @property
    def coverage(self) -> float | None:
        """The share of all rows that was answered."""
        rows = self.rows + self.unanswered.total()
        return self.rows / rows if rows else None

    def interval(self) -> tuple[float, float] | None:
        """Where the accuracy on many more rows of this kind lies, with 95 % confidence."""
        if not self.rows:
            return None
        n, p = self.rows, self.right / self.rows
        centre, spread = p + _Z**2 / (2 * n), math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
        whole = 1 + _Z**2 / n
        low, high = (centre - _Z * spread) / whole, (centre + _Z * spread) / whole
        return min(max(low, 0.0), p), max(min(high, 1.0), p)  # against rounding, at 0 and at 1

    def confusion(self) -> dict[str, dict[str, int]]:
        """The number of rows by right label, then by chosen label; both in alphabetical order."""
        table: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for (gold, label), count in sorted(self._pairs.items()):
            table[gold][label] = count
        return dict(table)

    def labels(self) -> dict[str, LabelAgreement]:
        """Each label that is right somewhere or was chosen; 0 where a share is of nothing."""
        names = sorted({name for pair in self._pairs for name in pair})
        return {name: self._of(name) for name in names}

    def macro_f1(self) -> float | None:
        """The mean F1 of the labels."""
        scores = [found.f1 for found in self.labels().values()]
        return sum(scores) / len(scores) if scores else None

    def calibration_error(self) -> float | None:
        """The expected calibration error; None where no probability was given."""
        rows = sum(place.rows for place in self.bins)
        if not rows:
            return None
        return sum(abs(place.probability - place.right) for place in self.bins) / rows

    def to_dict(self) -> dict[str, object]:
        """All of it for JSON."""
        interval = self.interval()
        return {
            "rows": self.rows,
            "right": self.right,
            "accuracy": self.accuracy,
            "interval_95": None if interval is None else list(interval),
            "coverage": self.coverage,
            "macro_f1": self.macro_f1(),
            "expected_calibration_error": self.calibration_error(),
            "labels": {
                name: {
                    "precision": found.precision,
                    "recall": found.recall,
                    "f1": found.f1,
                    "rows": found.rows,
                }
                for name, found in self.labels().items()
            },
            "confusion": self.confusion(),
            "calibration": [
                {
                    "rows": place.rows,
                    "mean_probability": place.probability / place.rows,
                    "accuracy": place.right / place.rows,
                }
                for place in self.bins
                if place.rows
            ],
        }

    def _of(self, name: str) -> LabelAgreement:
        hits = self._pairs[name, name]
        chosen = sum(count for (_, label), count in self._pairs.items() if label == name)
        rows = sum(count for (gold, _), count in self._pairs.items() if gold == name)
        f1 = 2 * hits / (chosen + rows) if chosen + rows else 0.0
        return LabelAgreement(_share(hits, chosen), _share(hits, rows), f1, rows)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
