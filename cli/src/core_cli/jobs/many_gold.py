"""Multi-label gold labels: read from a row's field, and compared with the answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from core_cli import output
from core_tasks.agreement.measures import LabelMeasures, macro_f1, share, wilson

if TYPE_CHECKING:
    from core_cli.reading.row import Row
    from core_cli.writing.answers import Answer

_SEPARATORS = ";|,"
_SHOWN = 12


def labels_in(value: object, known: Collection[str] = ()) -> frozenset[str] | None:
    """Return the labels in a field: a list, its JSON, or a text separated by ``;``, ``|`` or ``,``.

    A text equal to one of the ``known`` labels is that label. An empty text means no label. None,
    for a missing field, returns None.
    """
    if isinstance(value, list):
        return frozenset(map(str, value))
    if value is None or not isinstance(value, str):
        return None if value is None else frozenset((str(value),))

    # One label that is known, a list in JSON, or labels with a separator between them.
    text = value.strip()
    if value in known or text in known:
        return frozenset((value if value in known else text,))
    if text.startswith("["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, list):
            return frozenset(map(str, found))
    separator = next((each for each in _SEPARATORS if each in text), "\n")
    return frozenset(part.strip() for part in text.split(separator) if part.strip())


class ManyGold:
    """A comparison of the labels found with those in the input's field.

    Each label is a separate question about each row; one without an answer counts as not found.
    """

    key = "gold"

    def __init__(self, field: str, labels: Sequence[str]) -> None:
        self.field, self._labels = field, tuple(labels)
        self.missing = self.rows = self.exact = self.failed = 0
        self._support, self._found, self._hits = (Counter[str](), Counter[str](), Counter[str]())

    def add(self, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
        """Count rows, except those that failed or lack the field."""
        for row, answer in zip(rows, answers, strict=True):
            gold = labels_in(row.fields.get(self.field), self._labels)
            if gold is None:
                self.missing += 1
            elif answer["error"] is not None:
                self.failed += 1
            else:
                found = labels_in(answer.get("labels"), self._labels) or frozenset()
                self.rows += 1
                self.exact += found == gold
                self._support.update(gold)
                self._found.update(found)
                self._hits.update(gold & found)

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
        for name, each in [*labels.items()][:_SHOWN]:
            output.say(
                f"  {name}: precision {each.precision:.3f}, recall {each.recall:.3f}, "
                f"F1 {each.f1:.3f}, {output.counted(each.support, 'row')}"
            )

    def _micro_f1(self) -> float:
        sums = (self._support.total(), self._found.total(), self._hits.total())
        return LabelMeasures(*sums).f1

    def to_dict(self) -> dict[str, object]:
        """Return the comparison for a report.

        ``micro_f1`` is of all labels' rows together, ``macro_f1`` the mean over the labels, both
        as in scikit-learn; ``exact`` is the share of the rows that have all labels right.
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
            "labels": {
                name: {
                    "precision": each.precision,
                    "recall": each.recall,
                    "f1": each.f1,
                    "support": each.support,
                    "answered": each.answered,
                }
                for name, each in labels.items()
            },
        }
