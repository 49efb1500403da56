"""Encodes lines of CSV and TSV, quoting where necessary, and decodes the cells."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

LONGEST_CELL = 2**31 - 1
"""Characters: what was written must be read again."""


def table_lines(rows: Iterable[Sequence[str]], separator: str) -> str:
    """Return the rows as lines that end in a line feed.

    Cells with the separator, a quote or a line break character are quoted.
    """
    lines = _Lines()
    csv.writer(lines, delimiter=separator, lineterminator="\r\n").writerows(rows)
    return "".join(lines)


def table_cells(text: str, separator: str) -> list[list[str]]:
    """Return the cells of such lines."""
    before = csv.field_size_limit(LONGEST_CELL)  # its own is 128 KiB, and an input has another
    try:
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    finally:
        csv.field_size_limit(before)


class _Lines(list[str]):
    """A sink for `csv.writer`, which quotes a carriage return only if it ends lines."""

    def write(self, line: str) -> None:
        """Store one line."""
        self.append(line.removesuffix("\r\n") + "\n")
