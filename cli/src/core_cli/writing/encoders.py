"""Encodes rows as the bytes of a file, block by block, and decodes the answers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from core.system.terminal import visible
from core_cli.output import json_lines
from core_cli.values import CELLS, Answer, Kind
from core_cli.writing.answers import Layout, answer_of, as_text

if TYPE_CHECKING:
    from core_cli.values import Answered


class Encoder(Protocol):
    """An output format. The bytes of a block depend only on it and on earlier blocks."""

    def block(self, rows: Sequence[Answered]) -> bytes:
        """Return the bytes of the next block."""
        ...

    def end(self) -> bytes:
        """Return the end of the output, after the last block."""
        ...

    def answers(self, data: bytes) -> list[Answer]:
        """Return the answers in a block's bytes, and count the block as written."""
        ...


def encoder(form: str, layout: Layout) -> Encoder:
    """Return the encoder of a format.

    Parquet uses the encoder of its intermediate line file.
    """
    if form in ("csv", "tsv"):
        return TableEncoder(layout, "," if form == "csv" else "\t")
    if form == "text":
        return TextEncoder(layout)
    return ArrayEncoder(layout) if form == "json" else LinesEncoder(layout, form == "parquet")


class LinesEncoder:
    """One JSON object per line; ``flat`` ones have the columns of a table, with numbers."""

    def __init__(self, layout: Layout, flat: bool = False) -> None:
        self._layout, self._flat = layout, flat
        self._columns: tuple[str, ...] = ()

    def block(self, rows: Sequence[Answered]) -> bytes:
        """Return a line per row."""
        if self._flat:
            self._columns = self._columns or self._layout.columns(rows)
            cells = (self._layout.cells(row, self._columns) for row in rows)
            return json_lines([dict(zip(self._columns, row, strict=True)) for row in cells])
        return json_lines([self._layout.record(row) for row in rows])

    def end(self) -> bytes:
        """Return nothing."""
        return b""

    def answers(self, data: bytes) -> list[Answer]:
        """Return the answers in lines; for flat ones the cells."""
        records = [json.loads(line) for line in data.splitlines()]
        kind = self._layout.kind
        if not self._flat:
            return [answer_of(record, kind) for record in records]
        self._columns = self._columns or tuple(records[0])
        return [_of_cells(kind, [record[name] for name in kind.columns]) for record in records]


class ArrayEncoder:
    """One JSON array, with one element per line."""

    def __init__(self, layout: Layout) -> None:
        self._layout, self._begun = layout, False

    def block(self, rows: Sequence[Answered]) -> bytes:
        """Return the elements, after the bracket or a comma."""
        lines = json_lines([self._layout.record(row) for row in rows])[:-1]
        start, self._begun = (b",\n" if self._begun else b"[\n"), True
        return start + lines.replace(b"\n", b",\n")

    def end(self) -> bytes:
        """Return the closing bracket."""
        return b"\n]\n" if self._begun else b"[]\n"

    def answers(self, data: bytes) -> list[Answer]:
        """Return the answers in elements."""
        self._begun = True
        return [answer_of(record, self._layout.kind) for record in json.loads(b"[%b]" % data[2:])]


class TableEncoder:
    """CSV or TSV with a header; cells with a separator, quote or line break are quoted."""

    def __init__(self, layout: Layout, separator: str) -> None:
        self._layout, self._separator = layout, separator
        self._columns: tuple[str, ...] = ()

    def block(self, rows: Sequence[Answered]) -> bytes:
        """Return the rows, after the header in the first block."""
        lines: list[Sequence[object]] = []
        if not self._columns:
            self._columns = self._layout.columns(rows)
            lines.append(self._columns)
        lines += (self._layout.cells(row, self._columns) for row in rows)
        return self._written(lines)

    def end(self) -> bytes:
        """Return nothing, or the header of a table without rows."""
        return b"" if self._columns else self._written([self._layout.columns(())])

    def answers(self, data: bytes) -> list[Answer]:
        """Return the answers in rows, with cells as texts."""
        rows = table_cells(data.decode(), self._separator)
        if not self._columns:
            self._columns = tuple(rows.pop(0))
        kind = self._layout.kind
        return [_of_cells(kind, row[-len(kind.columns) :]) for row in rows]

    def _written(self, lines: Sequence[Sequence[object]]) -> bytes:
        cells = ([as_text(cell) for cell in line] for line in lines)
        return table_lines(cells, self._separator).encode(errors="backslashreplace")


class TextEncoder:
    """The answer alone, one per line: line breaks are escaped, and a failed row is empty."""

    def __init__(self, layout: Layout) -> None:
        self._kind = layout.kind

    def block(self, rows: Sequence[Answered]) -> bytes:
        """Return a line per row."""
        texts = (as_text(self._kind.cells(row.answer)[0]) for row in rows)
        return "".join(f"{visible(text)}\n" for text in texts).encode()

    def end(self) -> bytes:
        """Return nothing."""
        return b""

    def answers(self, data: bytes) -> list[Answer]:
        """Return the answers, as far as a line contains them."""
        nothing = [None] * (len(self._kind.columns) - 1)
        return [_of_cells(self._kind, [line, *nothing]) for line in data.decode().splitlines()]


def _of_cells(kind: Kind, cells: Sequence[object]) -> Answer:
    """Return an answer from its cells; numbers are parsed for the summary."""
    answer: Answer = {CELLS: tuple(cells), **dict(zip(kind.columns, cells, strict=True))}
    for name in ("probability", "margin", "label_mass"):
        value = answer.get(name)
        if isinstance(value, str):
            answer[name] = float(value) if value else None
    answer["error"] = {"type": "", "message": answer["error"]} if answer["error"] else None
    return answer


LONGEST_CELL = 2**31 - 1
"""Maximum characters of a cell: no limit, because every written cell must be readable again."""


def table_lines(rows: Iterable[Sequence[str]], separator: str) -> str:
    """Return the rows as lines that end in a line feed.

    Cells with the separator, a quote or a line break character are quoted.
    """
    lines = _Lines()
    csv.writer(lines, delimiter=separator, lineterminator="\r\n").writerows(rows)
    return "".join(lines)


def table_cells(text: str, separator: str) -> list[list[str]]:
    """Return the cells of lines from `table_lines`."""
    # The limit is 128 KiB by default; the readers of inputs set another.
    before = csv.field_size_limit(LONGEST_CELL)
    try:
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    finally:
        csv.field_size_limit(before)


class _Lines(list[str]):
    """A sink for `csv.writer`, which quotes a carriage return only if it ends lines."""

    def write(self, line: str) -> None:
        """Store one line."""
        self.append(line.removesuffix("\r\n") + "\n")
