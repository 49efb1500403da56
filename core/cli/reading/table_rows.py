"""Rows of CSV and TSV: quotes and line breaks in cells, a header, other separators."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import IO

import click

from core.cli.reading.fields import Fields
from core.cli.reading.lines import MAX_LINE_BYTES, lines
from core.cli.reading.row import InputError, Row

SEPARATORS = ",;\t|"


def separator_of(header: str) -> str:
    """The separator of a header: of those that CSV has in the wild, the most frequent one."""
    unquoted = "".join(header.split('"')[::2])
    return max(SEPARATORS, key=unquoted.count)


def rows_of_table(stream: IO[bytes], name: str, form: str, fields: Fields) -> Iterator[Row]:
    """One row per record behind the header. Raises `click.UsageError` for a header of no use."""
    csv.field_size_limit(MAX_LINE_BYTES)
    source = _Lines(stream)
    first = next(source, None)
    if first is None:
        return
    separator = "\t" if form == "tsv" else separator_of(first)
    columns = _columns(first, source, separator, name)

    reader = csv.reader(source, delimiter=separator, strict=True)
    while True:
        line = source.number + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except (csv.Error, InputError) as error:
            problem = InputError(f"line {line} is not valid {form.upper()}: {error}.")
            yield Row(line, error=problem)
            continue
        if cells:
            yield _row(line, columns, cells, fields)


class _Lines:
    """The lines of a stream as text, counted; what is not UTF-8 in them stays as surrogates."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.number = 0
        self._lines = lines(stream)

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.number += 1
        if len(line) > MAX_LINE_BYTES:
            raise InputError(f"it is longer than {MAX_LINE_BYTES} bytes, which is no prompt")
        return line.decode(errors="surrogateescape")


def _columns(first: str, source: _Lines, separator: str, name: str) -> list[str]:
    """The names of the columns: the first record, whose cells may hold line breaks too."""

    def record() -> Iterator[str]:
        yield first
        yield from source

    try:
        columns = next(csv.reader(record(), delimiter=separator, strict=True))
    except (csv.Error, InputError) as error:
        raise click.UsageError(f"{name}: the header cannot be read: {error}.") from None
    columns = [column or f"column {number}" for number, column in enumerate(columns, 1)]
    twice = next((column for column in columns if columns.count(column) > 1), None)
    if twice is not None:
        raise click.UsageError(f"{name}: the column {twice!r} stands twice in the header.")
    return columns


def _row(line: int, columns: list[str], cells: list[str], fields: Fields) -> Row:
    if len(cells) != len(columns):
        problem = InputError(
            f"line {line} has {len(cells)} cells, and the header {len(columns)}. A cell that holds "
            "the separator or a line break stands in double quotes."
        )
        return Row(line, error=problem)
    if not all(map(str.isascii, cells)):
        try:
            "".join(cells).encode()
        except UnicodeEncodeError:
            return Row(line, error=InputError(f"line {line} is not valid UTF-8."))
    return fields.row(line, dict(zip(columns, cells, strict=True)))
