"""Writing answers to stdout: a table on a terminal, lines with tabs, or a file's form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from core.cli import output
from core.cli.rows.bulk import Answered
from core.cli.wording import in_flags
from core.cli.writing.encoders import encoder
from core.cli.writing.records import LINE, Layout, as_text
from core.errors import CoreError


class Sink(Protocol):
    """Where answers go."""

    def write(self, rows: Sequence[Answered]) -> None:
        """Write some, in input order."""
        ...

    def end(self) -> None:
        """All are written."""
        ...


class Screen:
    """A table for people: the text, and the answer without what only a program wants."""

    _LEFT_OUT = ("label_mass", "finish_reason", "error")

    def __init__(self, layout: Layout) -> None:
        self._layout, self._header = layout, True

    def write(self, rows: Sequence[Answered]) -> None:
        """Draw some rows; the first ones under a header."""
        kind = self._layout.kind
        shown = [n for n, name in enumerate(kind.columns) if name not in self._LEFT_OUT]
        cells = [kind.cells(row.answer) for row in rows]
        lines = [
            (row.row.text, *(as_text(cell[n]) for n in shown))
            for row, cell in zip(rows, cells, strict=True)
        ]
        names = ["TEXT", *(kind.columns[n].upper() for n in shown)]
        output.draw(names, lines, cut=True, header=self._header)
        self._header = False

    def end(self) -> None:
        """Nothing."""


class Lines:
    """Tab-separated lines under a header: the line in the input, the text, the answer."""

    def __init__(self, layout: Layout) -> None:
        self._layout, self._header = layout, True

    def write(self, rows: Sequence[Answered]) -> None:
        """Write a line per row."""
        kind = self._layout.kind
        lines: list[Sequence[str]] = [(LINE, "text", *kind.columns)] if self._header else []
        for row in rows:
            cells = (row.row.line, row.row.text, *kind.cells(row.answer))
            lines.append([as_text(cell) for cell in cells])
        output.write_lines(lines)
        self._header = False

    def end(self) -> None:
        """Nothing."""


class Encoded:
    """What would stand in a file."""

    def __init__(self, layout: Layout, form: str) -> None:
        self._encoder = encoder(form, layout)

    def write(self, rows: Sequence[Answered]) -> None:
        """Write the bytes of a block."""
        output.write_bytes(self._encoder.block(rows))

    def end(self) -> None:
        """Write what stands behind the last row."""
        output.write_bytes(self._encoder.end())


def sink(layout: Layout, form: str | None) -> Sink:
    """What writes to stdout in a form; without one, for whom stdout is."""
    if form is not None:
        return Encoded(layout, form)
    return Screen(layout) if output.is_terminal() else Lines(layout)


class Failures:
    """Counts the rows that failed, and ``explained`` says on stderr why the first five did."""

    _SHOWN = 5

    def __init__(self, explained: bool) -> None:
        self.count = 0
        self._explained = explained

    def add(self, rows: Sequence[Answered]) -> None:
        """Count the failed among these, and explain them while there are few."""
        for row in rows:
            if row.error is not None:
                self.count += 1
                if self._explained and self.count <= self._SHOWN:
                    output.say(f"Error: {_explanation(row)}")

    def end(self) -> None:
        """Say how many were not explained."""
        more = self.count - self._SHOWN
        if self._explained and more > 0:
            output.say(f"and {more} more")


def _explanation(row: Answered) -> str:
    error, place = row.error, row.row.place
    words = in_flags(error) if isinstance(error, CoreError) else str(error)
    text = " ".join(words.split()) or type(error).__name__
    return text if text.startswith(place) else f"{place}: {text}"
