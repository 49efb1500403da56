"""The file of rows that were labelled by hand: CSV or JSON lines, written after each label."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

import click

from core.system import outputs
from core_cli import output
from core_cli.reading.row import Fields
from core_cli.reading.source import opened

COLUMNS = ("line", "text", "label")
KIND = outputs.Kind("labelled rows", re.compile(rb'line,text,label\r?\n|\{"line": ?\d+, ?"text":'))


@dataclass(frozen=True, slots=True)
class GoldRow:
    """A row with its gold label; ``line`` is its line in the input."""

    line: int
    text: str
    label: str

    def record(self) -> Mapping[str, object]:
        """Return the row as it is written."""
        return {"line": self.line, "text": self.text, "label": self.label}


class GoldFile:
    """The labelled rows, in the order of labelling, and their file.

    Raises `click.UsageError` for a name that does not end in .csv or .jsonl, and `OutputError`
    for a file of anything else.
    """

    def __init__(self, path: str) -> None:
        self.path, self._form = path, os.path.splitext(path)[1].lower()
        if self._form not in (".csv", ".jsonl"):
            raise click.UsageError(f"{path}: labelled rows are written to a .csv or .jsonl file.")
        outputs.check(path, KIND)
        self.rows = self._read() if os.path.exists(path) and os.path.getsize(path) else []

    def add(self, row: GoldRow) -> None:
        """Add a row, and write the file."""
        self.rows.append(row)
        self._write()

    def undo(self) -> GoldRow | None:
        """Remove the last row and write the file; return the row, None without one."""
        if not self.rows:
            return None
        row = self.rows.pop()
        self._write()
        return row

    def _read(self) -> list[GoldRow]:
        with opened(self.path, self._form[1:], Fields("text", gold="label")) as source:
            rows = [row for row in source.rows() if row.error is None]
        return [
            GoldRow(int(str(row.value("line"))), row.text, str(row.value("label"))) for row in rows
        ]

    def _write(self) -> None:
        records = [row.record() for row in self.rows]
        if self._form == ".jsonl":
            data = output.json_lines(records)
        else:
            text = io.StringIO()
            table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
            table.writeheader()
            table.writerows(records)
            data = text.getvalue().encode()
        outputs.write(self.path, data, KIND)
