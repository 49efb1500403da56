"""Labels compared with the gold labels of the input: printed, reported, plotted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from core_cli import output
from core_cli.rows.gold_labels import labels_in
from core_cli.values import UNSURE
from core_cli.writing.answers import best, shown
from core_tasks.agreement import Agreement, svg
from core_tasks.agreement.gaps import error_text
from core_tasks.agreement.measures import LabelMeasures, macro_f1, share, wilson

if TYPE_CHECKING:
    from core_cli.reading.row import Row
    from core_cli.values import Answer
    from core_tasks.agreement.baseline import Baseline


_SHOWN = 12
_COMPARED = 2000
"""Rows to compare with guessing, which takes a second or two."""


class Gold:
    """A comparison of the answers with the input field of the gold labels."""

    key = "gold"

    def __init__(self, field: str) -> None:
        self.field = field
        self.agreement = Agreement()
        self.missing = 0
        self._texts: list[str] = []
        self._labels: list[str] = []

    @property
    def accuracy(self) -> float | None:
        """The share of correct labels; None without rows."""
        accuracy: float | None = self.agreement.to_dict()["accuracy"]
        return accuracy

    def add(self, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
        """Count rows, except those that failed or have no gold label."""
        for row, answer in zip(rows, answers, strict=True):
            gold = row.value(self.field)
            if gold is None or gold == "":
                self.missing += 1
            elif answer["error"] is None:
                label, probability = answer.get("label"), answer.get("probability", best(answer))
                prediction = label if isinstance(label, str) and label != UNSURE else None
                sureness = shown(probability) if isinstance(probability, float) else None
                self.agreement.add(str(gold), prediction, sureness)
                if len(self._texts) < _COMPARED:
                    self._texts.append(row.text)
                    self._labels.append(str(gold))

    @cached_property
    def baseline(self) -> Baseline | None:
        """The accuracy of guessing on the first rows; None without any."""
        from core_tasks.agreement.baseline import baseline_of

        return baseline_of(self._texts, self._labels)

    def tell(self) -> None:
        """Print the accuracy and the metrics of each label on stderr."""
        metrics = self.agreement.to_dict()
        if metrics["accuracy"] is None:
            output.say(f"no row has a gold label in {self.field!r}")
            return
        low, high = (100 * end for end in metrics["accuracy_interval"])
        parts = [
            f"correct: {metrics['right']} of {metrics['answered']}, "
            f"{100 * metrics['accuracy']:.1f} % ({low:.1f} to {high:.1f})"
        ]
        parts.append(f"macro F1 {metrics['macro_f1']:.3f}")
        if metrics["calibration_error"] is not None:
            interval = metrics["calibration_error_interval"]
            parts.append(error_text(metrics["calibration_error"], interval))
        output.say(", ".join(parts))
        if baseline := self.baseline:
            rows = f" (first {baseline.rows} rows)" * (baseline.rows < metrics["rows"])
            output.say(f"for comparison, {baseline}{rows}")

        if metrics["coverage"] < 1:
            output.say(f"answered: {100 * metrics['coverage']:.1f} %; the rest are unsure")
        for line in (*_of_labels(metrics["labels"]), *_confused(metrics["confusion"])):
            output.say(line)

    def to_dict(self) -> dict[str, object]:
        """Return the comparison for a report."""
        return {"field": self.field, "missing": self.missing, **self.agreement.to_dict()}

    def picture(self) -> str:
        """Return the comparison as SVG."""
        return svg(self.agreement.to_dict(), title=f"labels compared with {self.field}")


def _of_labels(metrics: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return a line per label, the worst first, and one that counts those not shown."""
    worst = sorted(metrics.items(), key=lambda label: label[1]["f1"])
    lines = [
        f"  {name}: precision {label['precision']:.3f}, recall {label['recall']:.3f}, "
        f"F1 {label['f1']:.3f}, {output.counted(int(label['support']), 'row')}"
        for name, label in worst[:_SHOWN]
    ]
    return lines + _and_more(len(worst), "label")


def _and_more(count: int, what: str) -> list[str]:
    return [f"  and {output.counted(count - _SHOWN, what)} more: --report"] * (count > _SHOWN)


def _confused(table: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return the confusions, the most frequent first."""
    wrong = [
        (count, gold, label)
        for gold, row in table.items()
        for label, count in row.items()
        if gold != label
    ]
    first = sorted(wrong, key=lambda confusion: (-confusion[0], *confusion[1:]))[:_SHOWN]
    lines = [f"  {gold} predicted as {label}: {count}" for count, gold, label in first]
    return lines + _and_more(len(wrong), "confusion")


class ManyGold:
    """A comparison of the predicted labels with the gold labels of the input.

    Each label is a separate question about each row; one without an answer counts as not predicted.
    """

    key = "gold"

    def __init__(self, field: str, labels: Sequence[str]) -> None:
        self.field, self._labels = field, tuple(labels)
        self.missing = self.rows = self.exact = self.failed = 0
        self._support, self._found, self._hits = (Counter[str](), Counter[str](), Counter[str]())

    @property
    def accuracy(self) -> float | None:
        """The share of rows with all labels correct; None without rows."""
        return share(self.exact, self.rows)

    def add(self, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
        """Count rows, except those that failed or lack the field."""
        for row, answer in zip(rows, answers, strict=True):
            gold = labels_in(row.value(self.field), self._labels)
            if gold is None:
                self.missing += 1
            elif answer["error"] is not None:
                self.failed += 1
            else:
                predicted = labels_in(answer.get("labels"), self._labels) or frozenset()
                self.rows += 1
                self.exact += predicted == gold
                self._support.update(gold)
                self._found.update(predicted)
                self._hits.update(gold & predicted)

    def _by_label(self) -> dict[str, LabelMeasures]:
        names = dict.fromkeys([*self._labels, *sorted({*self._support, *self._found})])
        return {
            label: LabelMeasures(self._support[label], self._found[label], self._hits[label])
            for label in names
        }

    def tell(self) -> None:
        """Print the exact matches and the metrics of each label on stderr."""
        interval, labels = wilson(self.exact, self.rows), self._by_label()
        if interval is None:
            output.say(f"no row has gold labels in {self.field!r}")
            return
        low, high = (100 * end for end in interval)
        output.say(
            f"exact match: {self.exact} of {self.rows}, {100 * self.exact / self.rows:.1f} % "
            f"({low:.1f} to {high:.1f}), micro F1 {self._micro_f1():.3f}, "
            f"macro F1 {macro_f1(labels) or 0.0:.3f}"
        )
        for line in _of_labels(self._metrics(labels)):
            output.say(line)

    def _micro_f1(self) -> float:
        sums = (self._support.total(), self._found.total(), self._hits.total())
        return LabelMeasures(*sums).f1

    def to_dict(self) -> dict[str, object]:
        """Return the comparison for a report.

        ``micro_f1`` is computed over the rows of all labels together, ``macro_f1`` is the mean over
        the labels, both as in scikit-learn; ``exact`` is the share of rows with all labels correct.
        """
        labels = self._by_label()
        return {
            "field": self.field,
            "missing": self.missing,
            "rows": self.rows,
            "exact": share(self.exact, self.rows),
            "exact_interval": wilson(self.exact, self.rows),
            "micro_f1": self._micro_f1(),
            "macro_f1": macro_f1(labels),
            "labels": self._metrics(labels),
        }

    @staticmethod
    def _metrics(labels: Mapping[str, LabelMeasures]) -> dict[str, dict[str, float]]:
        return {
            name: {
                "precision": measures.precision,
                "recall": measures.recall,
                "f1": measures.f1,
                "support": measures.support,
                "answered": measures.answered,
            }
            for name, measures in labels.items()
        }
