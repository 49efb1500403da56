"""Writes answers to stdout: a table on a terminal, tab-separated lines, or a file format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from core_cli import output
from core_cli.values import Answered
from core_cli.writing.answers import LINE, Layout, as_text
from core_cli.writing.encoders import encoder


class Sink(Protocol):
    """A destination of answers."""

    def write(self, rows: Sequence[Answered]) -> None:
        """Write rows, in input order."""
        ...

    def end(self) -> None:
        """Finish, after the last row."""
        ...


class Screen:
    """A table for people: the text and the main columns of the answer."""

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
        """Do nothing."""


class Lines:
    """Tab-separated lines with a header: line number, text, answer."""

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
        """Do nothing."""


class Encoded:
    """Output in a file format."""

    def __init__(self, layout: Layout, form: str) -> None:
        self._encoder = encoder(form, layout)

    def write(self, rows: Sequence[Answered]) -> None:
        """Write the bytes of a block."""
        output.write_bytes(self._encoder.block(rows))

    def end(self) -> None:
        """Write the end of the output, after the last row."""
        output.write_bytes(self._encoder.end())


def sink(layout: Layout, form: str | None) -> Sink:
    """Return the writer for a format; without one, for a terminal or a program."""
    if form is not None:
        return Encoded(layout, form)
    return Screen(layout) if output.is_terminal() else Lines(layout)
