"""Writing what classify found: JSON lines, a table on a terminal, or tab-separated lines."""

from __future__ import annotations

from collections.abc import Sequence

from core.cli import output
from core.cli.inputs import Row
from core.cli.wording import in_flags
from core.errors import CoreError
from core.types import ClassifyResult

Outcome = tuple[int, Row, ClassifyResult]  # index in the input, what was asked, what came out


def write(outcomes: Sequence[Outcome], *, as_json: bool, with_labels: bool) -> None:
    """Write some rows in input order."""
    if as_json:
        output.write_json(*(record(*outcome) for outcome in outcomes))
        return
    rows = [_cells(row, result, with_labels) for _, row, result in outcomes]
    if output.is_terminal():
        columns = ("TEXT", "LABEL", "PROBABILITY", "MARGIN") if with_labels else ("TEXT", "TOKEN")
        output.draw(columns, rows, cut=True)
    else:
        output.write_lines(rows)


class Failures:
    """Counts the rows that failed, and ``explained`` says on stderr why the first five did."""

    _SHOWN = 5

    def __init__(self, explained: bool) -> None:
        self.count = 0
        self._explained = explained

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Count the failed among these, and explain them while there are few."""
        for _, row, result in outcomes:
            if result.error is not None:
                self.count += 1
                if self._explained and self.count <= self._SHOWN:
                    output.say(f"Error: {_explanation(row, result.error)}")

    def end(self) -> None:
        """Say how many were not explained."""
        more = self.count - self._SHOWN
        if self._explained and more > 0:
            output.say(f"and {more} more")


def record(index: int, row: Row, result: ClassifyResult) -> dict[str, object]:
    """The JSON object of one row."""
    identity = {} if row.identity is None else {row.identity[0]: row.identity[1]}
    return {"index": index, **identity, "prompt": row.text, **result.to_dict()}


def _cells(row: Row, result: ClassifyResult, with_labels: bool) -> tuple[str, ...]:
    if not with_labels:
        return row.text, "" if result.token is None else result.token.text
    if result.label is None or result.probabilities is None or result.margin is None:
        return row.text, "", "", ""
    best = result.probabilities[result.label]
    return row.text, result.label, f"{best:.4f}", f"{result.margin:.4f}"


def _explanation(row: Row, error: Exception) -> str:
    words = in_flags(error) if isinstance(error, CoreError) else str(error)
    text = " ".join(words.split()) or type(error).__name__
    return text if text.startswith(row.place) else f"{row.place}: {text}"
