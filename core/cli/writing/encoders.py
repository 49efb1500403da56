"""Rows as the bytes of a file, block by block, and the answers back from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from core.cli.output import json_lines
from core.cli.writing.answers import CELLS, Answer, Kind
from core.cli.writing.records import Layout, answer_of, as_text
from core.cli.writing.tables import table_cells, table_lines
from core.system.visible import visible

if TYPE_CHECKING:
    from core.cli.rows.bulk import Answered


class Encoder(Protocol):
    """One form of output. What a block comes to depends on it and on the blocks before alone."""

    def block(self, rows: Sequence[Answered]) -> bytes:
        """The bytes of the next block."""
        ...

    def end(self) -> bytes:
        """What stands behind the last block."""
        ...

    def answers(self, data: bytes) -> list[Answer]:
        """The answers in a block's bytes, which then counts as written."""
        ...


def encoder(form: str, layout: Layout) -> Encoder:
    """The encoder of a form. Parquet's is that of the lines which it is made of at the end."""
    if form in ("csv", "tsv"):
        return TableEncoder(layout, "," if form == "csv" else "\t")
    if form == "text":
        return TextEncoder(layout)
    return ArrayEncoder(layout) if form == "json" else LinesEncoder(layout, form == "parquet")


class LinesEncoder:
    """A JSON object per line; ``flat`` ones have the columns of a table, and numbers in them."""

    def __init__(self, layout: Layout, flat: bool = False) -> None:
        self._layout, self._flat = layout, flat
        self._columns: tuple[str, ...] = ()

    def block(self, rows: Sequence[Answered]) -> bytes:
        """A line per row."""
        if self._flat:
            self._columns = self._columns or self._layout.columns(rows)
            cells = (self._layout.cells(row, self._columns) for row in rows)
            return json_lines([dict(zip(self._columns, row, strict=True)) for row in cells])
        return json_lines([self._layout.record(row) for row in rows])

    def end(self) -> bytes:
        """Nothing."""
        return b""

    def answers(self, data: bytes) -> list[Answer]:
        """The answers in lines; of flat ones the cells."""
        records = [json.loads(line) for line in data.splitlines()]
        kind = self._layout.kind
        if not self._flat:
            return [answer_of(record, kind) for record in records]
        self._columns = self._columns or tuple(records[0])
        return [_of_cells(kind, [record[name] for name in kind.columns]) for record in records]


class ArrayEncoder:
    """One JSON array, with an element per line."""

    def __init__(self, layout: Layout) -> None:
        self._layout, self._begun = layout, False

    def block(self, rows: Sequence[Answered]) -> bytes:
        """The elements, behind the bracket or a comma."""
        lines = json_lines([self._layout.record(row) for row in rows])[:-1]
        start, self._begun = (b",\n" if self._begun else b"[\n"), True
        return start + lines.replace(b"\n", b",\n")

    def end(self) -> bytes:
        """The closing bracket."""
        return b"\n]\n" if self._begun else b"[]\n"

    def answers(self, data: bytes) -> list[Answer]:
        """The answers in elements."""
        self._begun = True
        return [answer_of(record, self._layout.kind) for record in json.loads(b"[%b]" % data[2:])]


class TableEncoder:
    """CSV or TSV with a header; what holds the separator, a quote or a line break is quoted."""

    def __init__(self, layout: Layout, separator: str) -> None:
        self._layout, self._separator = layout, separator
        self._columns: tuple[str, ...] = ()

    def block(self, rows: Sequence[Answered]) -> bytes:
        """The rows, behind the header in the first block."""
        lines: list[Sequence[object]] = []
        if not self._columns:
            self._columns = self._layout.columns(rows)
            lines.append(self._columns)
        lines += (self._layout.cells(row, self._columns) for row in rows)
        return self._written(lines)

    def end(self) -> bytes:
        """Nothing, or the header of a table without rows."""
        return b"" if self._columns else self._written([self._layout.columns(())])

    def answers(self, data: bytes) -> list[Answer]:
        """The answers in rows, whose cells are texts."""
        rows = table_cells(data.decode(), self._separator)
        if not self._columns:
            self._columns = tuple(rows.pop(0))
        kind = self._layout.kind
        return [_of_cells(kind, row[-len(kind.columns) :]) for row in rows]

    def _written(self, lines: Sequence[Sequence[object]]) -> bytes:
        cells = ([as_text(cell) for cell in line] for line in lines)
        return table_lines(cells, self._separator).encode(errors="backslashreplace")


class TextEncoder:
    """The answer alone, one a line: line breaks in it are escapes, and a failed row is empty."""

    def __init__(self, layout: Layout) -> None:
        self._kind = layout.kind

    def block(self, rows: Sequence[Answered]) -> bytes:
        """A line per row."""
        texts = (as_text(self._kind.cells(row.answer)[0]) for row in rows)
        return "".join(f"{visible(text)}\n" for text in texts).encode()

    def end(self) -> bytes:
        """Nothing."""
        return b""

    def answers(self, data: bytes) -> list[Answer]:
        """The answers, as far as a line tells."""
        nothing = [None] * (len(self._kind.columns) - 1)
        return [_of_cells(self._kind, [line, *nothing]) for line in data.decode().splitlines()]


def _of_cells(kind: Kind, cells: Sequence[object]) -> Answer:
    """An answer by the cells that tell of it; numbers are read for the summary."""
    answer: Answer = {CELLS: tuple(cells), **dict(zip(kind.columns, cells, strict=True))}
    for name in ("probability", "margin", "label_mass"):
        value = answer.get(name)
        if isinstance(value, str):
            answer[name] = float(value) if value else None
    answer["error"] = {"type": "", "message": answer["error"]} if answer["error"] else None
    return answer
