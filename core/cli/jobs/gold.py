"""Labels beside the right ones of the input: told, reported, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from core.agreement import Agreement
from core.cli import output
from core.cli.writing.answers import UNSURE, best

if TYPE_CHECKING:
    from core.cli.reading.row import Row
    from core.cli.writing.answers import Answer

_SHOWN = 12


class Gold:
    """Compares the answers with the field of the input that holds the right labels."""

    def __init__(self, field: str) -> None:
        self.field = field
        self.agreement = Agreement()
        self.missing = 0

    def add(self, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
        """Count rows; one without a right label, or that failed, does not count."""
        for row, answer in zip(rows, answers, strict=True):
            gold = row.fields.get(self.field)
            if gold is None or gold == "":
                self.missing += 1
            elif answer["error"] is None:
                label, share = answer.get("label"), answer.get("probability", best(answer))
                told = label if isinstance(label, str) and label != UNSURE else None
                share = share if isinstance(share, float) else None
                self.agreement.add(str(gold), told, share)

    def tell(self) -> None:
        """Say on stderr how many are right, and of which label."""
        found, interval = self.agreement, self.agreement.interval()
        if found.accuracy is None or interval is None:
            output.say(f"no row has a label in {self.field!r} to compare with")
            return
        low, high = (100 * end for end in interval)
        error, macro = found.calibration_error(), found.macro_f1()
        output.say(
            f"right: {found.right} of {found.rows}, {100 * found.accuracy:.1f} % "
            f"({low:.1f} to {high:.1f})"
            + (f", macro F1 {macro:.3f}" if macro is not None else "")
            + (f", calibration error {error:.3f}" if error is not None else "")
        )
        if (share := found.coverage) is not None and share < 1:
            output.say(f"answered: {100 * share:.1f} %; the others are unsure")
        for name, label in list(found.labels().items())[:_SHOWN]:
            output.say(
                f"  {name}: precision {label.precision:.3f}, recall {label.recall:.3f}, "
                f"F1 {label.f1:.3f}, {output.counted(label.rows, 'row')}"
            )
        for line in self._confused():
            output.say(line)

    def to_dict(self) -> dict[str, object]:
        """The comparison for a report."""
        return {"field": self.field, "missing": self.missing, **self.agreement.to_dict()}

    def _confused(self) -> list[str]:
        """The confusion table for few labels, the most frequent confusions for many."""
        table = self.agreement.confusion()
        wrong = [
            (count, gold, label)
            for gold, row in table.items()
            for label, count in row.items()
            if gold != label
        ]
        first = sorted(wrong, key=lambda found: (-found[0], *found[1:]))[:_SHOWN]
        return [f"  {gold} taken for {label}: {count}" for count, gold, label in first]


def plot(agreement: Agreement) -> str:
    """An SVG: on the left how sure and how right, on the right what was taken for what."""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="860" height="420" '
        'font-family="sans-serif" font-size="12" fill="#888">'
        f"{_reliability(agreement)}{_confusion(agreement)}</svg>\n"
    )


def _reliability(agreement: Agreement) -> str:
    """Bars of the share that is right, by probability; on the dashed line both are the same."""
    left, top, size = 60, 40, 300
    width = size / len(agreement.bins)
    parts = [
        f'<text x="{left}" y="24">right, by the probability of the label</text>',
        f'<rect x="{left}" y="{top}" width="{size}" height="{size}" fill="none" stroke="#888"/>',
    ]
    for number, place in enumerate(agreement.bins):
        if not place.rows:
            continue
        height = size * place.right / place.rows
        parts.append(
            f'<rect x="{left + number * width:.1f}" y="{top + size - height:.1f}" '
            f'width="{width - 1:.1f}" height="{height:.1f}" fill="#4a90d9">'
            f"<title>{place.right} of {place.rows}</title></rect>"
        )
    parts.append(
        f'<line x1="{left}" y1="{top + size}" x2="{left + size}" y2="{top}" stroke="#d94a4a" '
        'stroke-dasharray="4"/>'
    )
    for share in (0.0, 0.5, 1.0):
        x, y = left + size * share, top + size - size * share
        parts.append(f'<text x="{x:.0f}" y="{top + size + 18}" text-anchor="middle">{share}</text>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.0f}" text-anchor="end">{share}</text>')
    return "".join(parts)


def _confusion(agreement: Agreement) -> str:
    """Rows of right labels, columns of chosen ones; the darker, the larger the share of a row."""
    names = list(agreement.labels())
    left, top, size = 500, 40, 300
    shown, table = names[:_SHOWN], agreement.confusion()
    cell = size / max(len(shown), 1)
    more = f" ({len(names) - len(shown)} labels not shown)" if len(names) > len(shown) else ""
    parts = [f'<text x="{left}" y="24">right label (rows), chosen label (columns){more}</text>']
    for i, gold in enumerate(shown):
        total = sum(table.get(gold, {}).values())
        y = top + i * cell
        parts.append(
            f'<text x="{left - 8}" y="{y + cell / 2 + 4:.1f}" text-anchor="end">'
            f"{escape(gold[:14])}</text>"
        )
        parts.append(
            f'<text transform="translate({left + i * cell + cell / 2:.1f} {top + size + 10}) '
            f'rotate(45)">{escape(gold[:14])}</text>'
        )
        for j, label in enumerate(shown):
            count = table.get(gold, {}).get(label, 0)
            share = count / total if total else 0.0
            x = left + j * cell
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{cell - 1:.1f}" height="{cell - 1:.1f}" '
                f'fill="#4a90d9" fill-opacity="{0.08 + 0.92 * share:.2f}"/>'
                f'<text x="{x + cell / 2:.1f}" y="{y + cell / 2 + 4:.1f}" '
                f'text-anchor="middle" fill="#222">{count or ""}</text>'
            )
    return "".join(parts)
