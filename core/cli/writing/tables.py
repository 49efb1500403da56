"""Lines of CSV and TSV, with quotes where a reader needs them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence


def table_lines(rows: Iterable[Sequence[str]], separator: str) -> str:
    """The rows as lines that end in a line feed.

    What holds the separator, a quote, or either character of a line break is quoted.
    """
    lines = _Lines()
    csv.writer(lines, delimiter=separator, lineterminator="\r\n").writerows(rows)
    return "".join(lines)


class _Lines(list[str]):
    """Takes the lines of `csv.writer`, which quotes a carriage return only where it ends lines."""

    def write(self, line: str) -> None:
        """Take one line."""
        self.append(line.removesuffix("\r\n") + "\n")
