"""Labels compared with the gold labels of the input: printed, reported, plotted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from core_cli import output
from core_cli.writing.answers import UNSURE, best
from core_cli.writing.records import shown
from core_tasks.agreement import Agreement, svg
from core_tasks.agreement.gaps import error_text

if TYPE_CHECKING:
    from core_cli.reading.row import Row
    from core_cli.writing.answers import Answer

_SHOWN = 12


class Gold:
    """A comparison of the answers with the input field of the gold labels."""

    key = "gold"

    def __init__(self, field: str) -> None:
        self.field = field
        self.agreement = Agreement()
        self.missing = 0

    def add(self, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
        """Count rows, except those that failed or have no gold label."""
        for row, answer in zip(rows, answers, strict=True):
            gold = row.fields.get(self.field)
            if gold is None or gold == "":
                self.missing += 1
            elif answer["error"] is None:
                label, share = answer.get("label"), answer.get("probability", best(answer))
                told = label if isinstance(label, str) and label != UNSURE else None
                share = shown(share) if isinstance(share, float) else None
                self.agreement.add(str(gold), told, share)

    def tell(self) -> None:
        """Print the accuracy and the metrics of each label on stderr."""
        found = self.agreement.to_dict()
        if found["accuracy"] is None:
            output.say(f"no row has a gold label in {self.field!r}")
            return
        low, high = (100 * end for end in found["accuracy_interval"])
        told = [
            f"correct: {found['right']} of {found['answered']}, {100 * found['accuracy']:.1f} % "
            f"({low:.1f} to {high:.1f})"
        ]
        told.append(f"macro F1 {found['macro_f1']:.3f}")
        if found["calibration_error"] is not None:
            interval = found["calibration_error_interval"]
            told.append(error_text(found["calibration_error"], interval))
        output.say(", ".join(told))

        if found["coverage"] < 1:
            output.say(f"answered: {100 * found['coverage']:.1f} %; the rest are unsure")
        for name, label in list(found["labels"].items())[:_SHOWN]:
            output.say(
                f"  {name}: precision {label['precision']:.3f}, recall {label['recall']:.3f}, "
                f"F1 {label['f1']:.3f}, {output.counted(label['support'], 'row')}"
            )
        for line in _confused(found["confusion"]):
            output.say(line)

    def to_dict(self) -> dict[str, object]:
        """Return the comparison for a report."""
        return {"field": self.field, "missing": self.missing, **self.agreement.to_dict()}

    def picture(self) -> str:
        """Return the comparison as SVG."""
        return svg(self.agreement.to_dict(), title=f"labels compared with {self.field}")


def _confused(table: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return the confusions, the most frequent first."""
    wrong = [
        (count, gold, label)
        for gold, row in table.items()
        for label, count in row.items()
        if gold != label
    ]
    first = sorted(wrong, key=lambda found: (-found[0], *found[1:]))[:_SHOWN]
    return [f"  {gold} predicted as {label}: {count}" for count, gold, label in first]
