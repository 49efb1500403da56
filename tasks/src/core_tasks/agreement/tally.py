"""Agreement with gold labels, counted row by row in constant memory.

Sums are integers in units of 2**-30, so that they are exact: rows in another order, in merged
shards, or in a job that was interrupted and resumed give the same report, bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from core_tasks.agreement import gaps, measures
from core_tasks.agreement.gaps import FINE, UNIT, Bin

FORMAT = 2
"""Format number of `Agreement.state`; a newer one is an error."""
BINS = 15
_SLACK = 1e-6  # how far rounding may put a probability beyond 0 or 1

Counts = dict[str, int]


class Agreement:
    """Counts of gold labels by a model's labels, with the probabilities of its labels.

    The calibration error uses at most ``bins`` bins of about equally many rows.
    """

    __slots__ = ("_bins", "_brier", "_brier_rows", "_cells", "_confusion", "_unanswered")

    def __init__(self, *, bins: int = BINS) -> None:
        if not 1 <= bins <= 1000:
            raise ValueError(f"bins={bins!r} is not valid: expected a number from 1 to 1000.")
        self._confusion: dict[str, Counts] = {}  # gold, then answer
        self._unanswered: Counts = {}  # gold
        self._bins, self._cells = bins, gaps.Cells()
        self._brier = self._brier_rows = 0

    def add(
        self,
        gold: str,
        label: str | None,
        probability: float | None = None,
        *,
        probabilities: Mapping[str, float] | None = None,
    ) -> None:
        """Count one row. ``label`` None is a row without an answer: unsure, or failed.

        ``probability`` is the label's; by default it is taken from ``probabilities`` of all labels,
        if they are given. Brier's score is computed from ``probabilities``.
        """
        _check_label("gold", gold)
        if label is None:
            self._unanswered[gold] = self._unanswered.get(gold, 0) + 1
            return
        _check_label("label", label)

        # All checks come before the first count: a row is counted completely or not at all.
        if probability is None and probabilities is not None:
            probability = probabilities.get(label)
        chosen = None if probability is None else _checked(probability)
        spread = _checked_all(probabilities)

        answers = self._confusion.setdefault(gold, {})
        answers[label] = answers.get(label, 0) + 1
        if chosen is not None:
            gaps.count_row(self._cells, chosen, label == gold, self._bins)
        if spread is not None:
            self._brier += round(measures.brier(spread, gold) * UNIT)
            self._brier_rows += 1

    def merge(self, other: Agreement) -> None:
        """Add the counts of another one."""
        if other._bins != self._bins:
            raise ValueError(
                f"{self._bins} bins cannot be merged with {other._bins}. Use the same number of "
                "bins for both."
            )
        for gold, answers in [*other._confusion.items()]:
            _add(self._confusion.setdefault(gold, {}), answers)
        _add(self._unanswered, other._unanswered)
        for cell, counts in [*other._cells.items()]:
            gaps.count(self._cells, cell, [*counts])
        self._brier += other._brier
        self._brier_rows += other._brier_rows

    # ----------------------------------------------------------------------- reports

    @property
    def rows(self) -> int:
        """The number of rows that were added."""
        return self._answered() + sum(self._unanswered.values())

    @property
    def accuracy(self) -> float | None:
        """The share of the answered rows that are right."""
        return measures.share(self._right(), self._answered())

    def bins(self) -> tuple[Bin, ...]:
        """Return bins of equal width for a plot, including empty ones."""
        return gaps.of_equal_width(self._cells, self._bins)

    def calibration_error(self) -> gaps.CalibrationError | None:
        """Return the calibration error of the rows with a probability; None without any."""
        return gaps.calibration_error(gaps.of_equal_mass(self._cells, self._bins))

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON. A measure that no row defines is None.

        ``accuracy`` and its interval (95 %) are for the answered rows, whose share is ``coverage``;
        ``recall`` is for all rows. ``confusion`` maps gold labels to counts by answer. ``bins``
        have equal width; the bins of ``calibration_error`` have equally many rows.
        """
        answered, right, bins = self._answered(), self._right(), self.bins()
        labels = measures.by_label(self._confusion, self._unanswered)
        interval, error = measures.wilson(right, answered), self.calibration_error()
        return {
            "rows": self.rows,
            "answered": answered,
            "right": right,
            "coverage": measures.share(answered, self.rows),
            "accuracy": self.accuracy,
            "accuracy_interval": None if interval is None else [*interval],
            "macro_f1": measures.macro_f1(labels),
            "calibration_error": None if error is None else error.value,
            "calibration_error_interval": None if error is None else [*error.interval],
            "brier": measures.share(self._brier / UNIT, self._brier_rows),
            "labels": {
                label: {
                    "precision": item.precision,
                    "recall": item.recall,
                    "f1": item.f1,
                    "support": item.support,
                    "answered": item.answered,
                }
                for label, item in labels.items()
            },
            "confusion": {
                gold: dict(sorted(answers.items()))
                for gold, answers in sorted(self._confusion.items())
            },
            "unanswered": dict(sorted(self._unanswered.items())),
            "bins": [
                {
                    "low": item.low,
                    "high": item.high,
                    "count": item.count,
                    "accuracy": item.accuracy,
                    "confidence": item.confidence,
                }
                for item in bins
            ],
        }

    def _answered(self) -> int:
        return sum(sum(answers.values()) for answers in self._confusion.values())

    def _right(self) -> int:
        return sum(answers.get(gold, 0) for gold, answers in self._confusion.items())

    # ----------------------------------------------------------------------- state

    def state(self) -> dict[str, Any]:
        """Return all counts for JSON, from which `from_state` continues."""
        return {
            "format": FORMAT,
            "confusion": {gold: dict(answers) for gold, answers in self._confusion.items()},
            "unanswered": dict(self._unanswered),
            "bins": self._bins,
            "cells": [[cell, *counts] for cell, counts in sorted(self._cells.items())],
            "brier": [self._brier_rows, self._brier],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Return the agreement of a `state`. Raises ValueError for a newer or invalid format.

        Format 1 only had bins of equal width: each becomes one cell, of rows with one probability.
        """
        try:
            if (form := _count(state["format"])) <= FORMAT:
                return cls._restored(state, form)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"This is not the state of an agreement: {error!r:.200}.") from None
        raise ValueError(
            f"This agreement has format {form}, but this version of core reads up to {FORMAT}. "
            "Upgrade core to read it."
        )

    @classmethod
    def _restored(cls, state: Mapping[str, Any], form: int) -> Self:
        cells = _cells_of_bins(state["bins"]) if form == 1 else state["cells"]
        restored = cls(bins=len(state["bins"]) if form == 1 else _count(state["bins"]))
        for gold, answers in state["confusion"].items():
            restored._confusion[gold] = _counts(answers)
        restored._unanswered = _counts(state["unanswered"])
        for cell, rows, right, p, squares in cells:
            counts = [_count(number) for number in (rows, right, p, squares)]
            if not 0 <= _count(cell) < restored._bins * FINE or not counts[1] <= counts[0] > 0:
                raise ValueError(f"cell {cell} with {counts} is not valid")
            gaps.count(restored._cells, cell, counts)
        restored._brier_rows, restored._brier = map(_count, state["brier"])
        return restored


def _cells_of_bins(bins: Iterable[Sequence[int]]) -> Iterator[tuple[int, int, int, int, int]]:
    for place, (rows, right, p) in enumerate(bins):
        if rows:
            mean = p / UNIT / rows
            squares = right * (1 - mean) ** 2 + (rows - right) * mean**2
            yield place * FINE + FINE - 1, rows, right, p, round(squares * UNIT)


def _check_label(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {value!r:.80}.")


def _checked(probability: float) -> float:
    value = float(probability)
    if not -_SLACK <= value <= 1 + _SLACK:  # NaN is neither
        raise ValueError(f"probability={value!r} is not valid: expected a number from 0 to 1.")
    return min(1.0, max(0.0, value))


def _checked_all(probabilities: Mapping[str, float] | None) -> dict[str, float] | None:
    if probabilities is None:
        return None
    checked = {label: _checked(p) for label, p in probabilities.items()}
    if not math.isclose(total := math.fsum(checked.values()), 1.0, abs_tol=1e-3):
        raise ValueError(f"The probabilities of all labels sum to {total:g}: expected 1.")
    return checked


def _add(counts: Counts, others: Mapping[str, int]) -> None:
    for label, rows in [*others.items()]:
        counts[label] = counts.get(label, 0) + rows


def _counts(state: Mapping[str, int]) -> Counts:
    return {label: _count(rows) for label, rows in state.items()}


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{value!r} is not a count")
    return value
