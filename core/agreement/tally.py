"""Agreement with gold labels, added up row by row in memory that does not grow with the rows.

Sums are whole numbers of 2**-30, so that they are exact: rows in another order, in parts that are
merged, or in a job that was interrupted and goes on come to the same report, bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from core.agreement import gaps, measures
from core.agreement.gaps import FINE, UNIT, Bin

FORMAT = 2
"""Of `Agreement.state`; a newer one is refused."""
BINS = 15
_SLACK = 1e-6  # what rounding may take a probability beyond 0 or 1

Counts = dict[str, int]


class Agreement:
    """Gold labels beside a model's, with the probability of what it chose.

    The calibration error is of so many ``bins`` of about equally many rows.
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

        ``probability`` is that of the label; where it is left out and ``probabilities`` of all
        labels are given, it is found there. These are what Brier's score takes.
        """
        _check_label("gold", gold)
        if label is None:
            self._unanswered[gold] = self._unanswered.get(gold, 0) + 1
            return
        _check_label("label", label)

        # All checks come before the first count: a row counts in whole or not at all.
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
        """Add what another one has counted."""
        if other._bins != self._bins:
            raise ValueError(
                f"{self._bins} bins cannot be merged with {other._bins}. Count both with "
                "the same number."
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
        """How many were added."""
        return self._answered() + sum(self._unanswered.values())

    @property
    def accuracy(self) -> float | None:
        """The share of the answered rows that is right."""
        return measures.share(self._right(), self._answered())

    def bins(self) -> tuple[Bin, ...]:
        """Bins of equal width for a drawing, also the empty ones."""
        return gaps.of_equal_width(self._cells, self._bins)

    def calibration_error(self) -> gaps.CalibrationError | None:
        """The calibration error of the rows whose probability is known; None for no row."""
        return gaps.calibration_error(gaps.of_equal_mass(self._cells, self._bins))

    def to_dict(self) -> dict[str, Any]:
        """The report, for JSON. What no row defines is None.

        ``accuracy`` and its interval (95 %) are of the answered rows, whose share is ``coverage``;
        ``recall`` is of all. ``confusion`` has gold labels outside and answers inside. ``bins`` are
        of equal width, and those of ``calibration_error`` of equally many rows.
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
                    "precision": each.precision,
                    "recall": each.recall,
                    "f1": each.f1,
                    "support": each.support,
                    "answered": each.answered,
                }
                for label, each in labels.items()
            },
            "confusion": {
                gold: dict(sorted(answers.items()))
                for gold, answers in sorted(self._confusion.items())
            },
            "unanswered": dict(sorted(self._unanswered.items())),
            "bins": [
                {
                    "low": each.low,
                    "high": each.high,
                    "count": each.count,
                    "accuracy": each.accuracy,
                    "confidence": each.confidence,
                }
                for each in bins
            ],
        }

    def _answered(self) -> int:
        return sum(sum(answers.values()) for answers in self._confusion.values())

    def _right(self) -> int:
        return sum(answers.get(gold, 0) for gold, answers in self._confusion.items())

    # ----------------------------------------------------------------------- state

    def state(self) -> dict[str, Any]:
        """All that was counted, for JSON: `from_state` goes on with it."""
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
        """Return the tally that `state` wrote. Raises ValueError for a newer format, and for none.

        Format 1 had bins of equal width alone: each becomes one cell, of rows of one probability.
        """
        try:
            if (form := _count(state["format"])) <= FORMAT:
                return cls._restored(state, form)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"This is no state of an agreement: {error!r:.200}.") from None
        raise ValueError(
            f"This agreement has format {form}, and this version of core reads up to {FORMAT}. "
            "Read it with a newer one."
        )

    @classmethod
    def _restored(cls, state: Mapping[str, Any], form: int) -> Self:
        cells = _cells_of_bins(state["bins"]) if form == 1 else state["cells"]
        made = cls(bins=len(state["bins"]) if form == 1 else _count(state["bins"]))
        for gold, answers in state["confusion"].items():
            made._confusion[gold] = _counts(answers)
        made._unanswered = _counts(state["unanswered"])
        for cell, rows, right, p, squares in cells:
            counts = [_count(each) for each in (rows, right, p, squares)]
            if not 0 <= _count(cell) < made._bins * FINE or not counts[1] <= counts[0] > 0:
                raise ValueError(f"there is no cell {cell} with {counts}")
            gaps.count(made._cells, cell, counts)
        made._brier_rows, made._brier = map(_count, state["brier"])
        return made


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
        raise ValueError(f"The probabilities of all labels come to {total:g}: expected 1.")
    return checked


def _add(counts: Counts, others: Mapping[str, int]) -> None:
    for label, rows in [*others.items()]:
        counts[label] = counts.get(label, 0) + rows


def _counts(state: Mapping[str, int]) -> Counts:
    return {label: _count(rows) for label, rows in state.items()}


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{value!r} is no count")
    return value
