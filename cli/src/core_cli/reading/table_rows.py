"""Rows of CSV and TSV, with a header, several separators, quotes and line breaks in cells."""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import IO

import click

from core_cli import reading
from core_cli.reading.row import ENCODING_ADVICE, Fields, InputError, Row, lines

SEPARATORS = ",;\t|"
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?')
"""The first line by which Excel names the separator."""
_WORDS = (
    ("unexpected end of data", "a double quote opens a cell and is not closed"),
    ("expected after", "a quote within a quoted cell must be doubled"),
    ("field larger", f"a cell is longer than {reading.MAX_LINE_BYTES} bytes"),
    ("new-line character", "a cell without double quotes contains a carriage return"),
)


def separator_of(header: str) -> str:
    """Return the separator of a header: the most frequent of the usual ones."""
    unquoted = "".join(header.split('"')[::2])
    return max(SEPARATORS, key=unquoted.count)


def rows_of_table(stream: IO[bytes], name: str, form: str, fields: Fields) -> Iterator[Row]:
    """Yield one row per record after the header. Raises `click.UsageError` for a bad header."""
    csv.field_size_limit(reading.MAX_LINE_BYTES)
    source = TableLines(stream)
    try:
        header = next((line for line in source if line.strip("\r\n")), None)
        if header is None:
            return
        separator = "\t" if form == "tsv" else separator_of(header)
        if named := SEPARATOR_LINE.fullmatch(header.strip("\r\n")):
            separator = named[1]
            header = next((line for line in source if line.strip("\r\n")), None)
            if header is None:
                return
        place = source.number
        columns = next(csv.reader(chain([header], source), delimiter=separator, strict=True))
    except (csv.Error, InputError) as error:
        reason = _reason(error)
        raise click.UsageError(f"{name}: the header cannot be read: {reason}.") from None
    columns = names_of(name, columns)
    fields.check(place, dict.fromkeys(columns, ""))

    reader = csv.reader(source, delimiter=separator, strict=True)
    while True:
        source.begin()
        line = source.number + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except (csv.Error, InputError) as error:
            source.return_rest()
            problem = InputError(f"line {line} is not valid {form.upper()}: {_reason(error)}.")
            yield Row(line, error=problem)
        else:
            if cells:
                yield _row(line, source, columns, cells, fields)


def _reason(error: Exception) -> str:
    text = str(error)
    return next((words for known, words in _WORDS if known in text), text)


def names_of(file: str, columns: list[str]) -> list[str]:
    """Return the column names; unnamed columns get one."""
    names = [column.strip() or f"column {n}" for n, column in enumerate(columns, 1)]
    if not _is_text(names):
        raise click.UsageError(f"{file}: the header is not valid UTF-8. {ENCODING_ADVICE}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise click.UsageError(f"{file} has two columns {twice!r}. Rename one in the header.")
    return names


def _row(
    line: int, source: TableLines, columns: list[str], cells: list[str], fields: Fields
) -> Row:
    if len(cells) != len(columns):
        end = "" if source.number == line else f" (to line {source.number})"
        problem = InputError(
            f"line {line}{end} has {len(cells)} cells; the header has {len(columns)}. Put cells "
            "with the separator or a line break in double quotes."
        )
        return Row(line, error=problem)
    if not _is_text(cells):
        return Row(line, error=InputError(f"line {line} is not valid UTF-8. {ENCODING_ADVICE}"))
    return fields.row(line, dict(zip(columns, cells, strict=True)), size=source.size)


def _is_text(cells: list[str]) -> bool:
    """Return whether all cells were valid UTF-8."""
    if all(map(str.isascii, cells)):
        return True
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        return False
    return True


_MOST_LINES = 2**20
"""Maximum lines of one record, because each takes more memory than its bytes."""
_FREE = 4


class TableLines:
    """The lines of a stream as text, counted; bytes that are not UTF-8 become surrogates.

    An unclosed quote takes everything after it into its cell. `return_rest` then ends the broken
    record with its first line, and the others are read again.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self.number = 0
        self._lines = lines(stream)
        self._record: list[bytes] = []
        self._again: deque[bytes] = deque()
        # Bytes that may still be read again, so that the total is at most a few times the input.
        self._credit = _FREE * reading.MAX_LINE_BYTES
        self._size = 0

    def __iter__(self) -> TableLines:
        return self

    def __next__(self) -> str:
        if self._again:
            line = self._again.popleft()
        else:
            line = next(self._lines)
            self._credit += len(line)
        self.number += 1
        self._record.append(line)
        self._size += len(line)
        if len(line) > reading.MAX_LINE_BYTES:
            raise InputError(f"it is longer than {reading.MAX_LINE_BYTES} bytes")
        if self._size > reading.MAX_LINE_BYTES or len(self._record) > _MOST_LINES:
            raise InputError("a double quote opens a cell and is not closed")
        return line.decode(errors="surrogateescape")

    @property
    def size(self) -> int:
        """The bytes of the record."""
        return self._size

    def begin(self) -> None:
        """Begin a record with the next line."""
        self._record, self._size = [], 0

    def return_rest(self) -> None:
        """End the record with its first line, so that its other lines are read again."""
        rest = self._record[1:]
        size = sum(map(len, rest))
        if size > self._credit:
            return
        self._credit -= size
        self._again.extendleft(reversed(rest))
        self.number -= len(rest)
