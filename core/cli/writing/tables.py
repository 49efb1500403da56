"""Lines of CSV and TSV, with quotes where a reader needs them; and the cells back from them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

LONGEST_CELL = 2**31 - 1
"""Characters: what was written must be read again."""


def table_lines(rows: Iterable[Sequence[str]], separator: str) -> str:
    """The rows as lines that end in a line feed.

    What holds the separator, a quote, or either character of a line break is quoted.
    """
    lines = _Lines()
    csv.writer(lines, delimiter=separator, lineterminator="\r\n").writerows(rows)
    return "".join(lines)


def table_cells(text: str, separator: str) -> list[list[str]]:
    """The cells of such lines."""
    before = csv.field_size_limit(LONGEST_CELL)  # its own is 128 KiB, and an input has another
    try:
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    finally:
        csv.field_size_limit(before)


class _Lines(list[str]):
    """Takes the lines of `csv.writer`, which quotes a carriage return only where it ends lines."""

    def write(self, line: str) -> None:
        """Take one line."""
        self.append(line.removesuffix("\r\n") + "\n")
