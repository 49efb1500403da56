"""Writing what rows brought: JSON lines, a table on a terminal, or tab-separated lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.cli import output
from core.cli.rows.inputs import Row
from core.cli.wording import in_flags
from core.errors import CoreError
from core.types import BatchResult, ClassifyResult

Result = ClassifyResult | BatchResult
Outcome = tuple[int, Row, Result]  # index in the input, what was asked, what came out


@dataclass(frozen=True, slots=True)
class Table:
    """Names of columns, and what stands in them; before them all stands the row's text."""

    columns: tuple[str, ...]
    cells: Callable[[Result], tuple[str, ...]]


def write(outcomes: Sequence[Outcome], table: Table | None) -> None:
    """Write some rows in input order; without a table, as JSON."""
    if table is None:
        output.write_json(*(record(*outcome) for outcome in outcomes))
        return
    rows = [(row.text, *table.cells(result)) for _, row, result in outcomes]
    if output.is_terminal():
        output.draw(("TEXT", *table.columns), rows, cut=True)
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


def record(index: int, row: Row, result: Result) -> dict[str, object]:
    """The JSON object of one row."""
    identity = {} if row.identity is None else {row.identity[0]: row.identity[1]}
    return {"index": index, **identity, "prompt": row.text, **result.to_dict()}


def _explanation(row: Row, error: Exception) -> str:
    words = in_flags(error) if isinstance(error, CoreError) else str(error)
    text = " ".join(words.split()) or type(error).__name__
    return text if text.startswith(row.place) else f"{row.place}: {text}"


# --------------------------------------------------------------------------- tables


def _token(result: Result) -> tuple[str, ...]:
    token = result.token if isinstance(result, ClassifyResult) else None
    return ("" if token is None else token.text,)


def _label(result: Result) -> tuple[str, ...]:
    if not isinstance(result, ClassifyResult) or result.label is None:
        return "", "", ""
    best = (result.probabilities or {}).get(result.label)
    if best is None or result.margin is None:
        return "", "", ""
    return result.label, f"{best:.4f}", f"{result.margin:.4f}"


def _answer(result: Result) -> tuple[str, ...]:
    return (result.text if isinstance(result, BatchResult) else "",)


TOKENS = Table(("TOKEN",), _token)
LABELS = Table(("LABEL", "PROBABILITY", "MARGIN"), _label)
ANSWERS = Table(("ANSWER",), _answer)
