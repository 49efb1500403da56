"""Rows of CSV and TSV: quotes and line breaks in cells, a header, other separators."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain
from typing import IO

import click

from core.cli.reading import lines
from core.cli.reading.fields import Fields
from core.cli.reading.row import InputError, Row
from core.cli.reading.table_lines import TableLines

SEPARATORS = ",;\t|"
_WORDS = (
    ("unexpected end of data", "a double quote opens a cell, and none closes it"),
    ("expected after", "in a cell in double quotes, a quote within is written twice"),
    ("field larger", f"a cell is longer than {lines.MAX_LINE_BYTES} bytes, which is no prompt"),
    ("new-line character", "a carriage return stands in a cell without double quotes"),
)


def separator_of(header: str) -> str:
    """The separator of a header: of those that CSV has in the wild, the most frequent one."""
    unquoted = "".join(header.split('"')[::2])
    return max(SEPARATORS, key=unquoted.count)


def rows_of_table(stream: IO[bytes], name: str, form: str, fields: Fields) -> Iterator[Row]:
    """One row per record behind the header. Raises `click.UsageError` for a header of no use."""
    csv.field_size_limit(lines.MAX_LINE_BYTES)
    source = TableLines(stream)
    try:
        header = next((line for line in source if line.strip("\r\n")), None)
        if header is None:
            return
        separator = "\t" if form == "tsv" else separator_of(header)
        place = source.number
        columns = next(csv.reader(chain([header], source), delimiter=separator, strict=True))
    except (csv.Error, InputError) as error:
        reason = _reason(error)
        raise click.UsageError(f"{name}: the header cannot be read: {reason}.") from None
    columns = _names(name, columns)
    fields.check(place, columns)

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


def _names(file: str, columns: list[str]) -> list[str]:
    """The names of the columns, each with its own."""
    names = [column.strip() or f"column {n}" for n, column in enumerate(columns, 1)]
    if not _is_text(names):
        raise click.UsageError(f"{file}: the header is not valid UTF-8.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise click.UsageError(
            f"{file}: the column {twice!r} stands twice in the header. Give one another name."
        )
    return names


def _row(
    line: int, source: TableLines, columns: list[str], cells: list[str], fields: Fields
) -> Row:
    if len(cells) != len(columns):
        end = "" if source.number == line else f" (to line {source.number})"
        problem = InputError(
            f"line {line}{end} has {len(cells)} cells, and the header {len(columns)}. A cell that "
            "holds the separator or a line break stands in double quotes."
        )
        return Row(line, error=problem)
    if not _is_text(cells):
        return Row(line, error=InputError(f"line {line} is not valid UTF-8."))
    return fields.row(line, dict(zip(columns, cells, strict=True)), size=source.size)


def _is_text(cells: list[str]) -> bool:
    """Whether all are characters, and none a byte that is not UTF-8."""
    if all(map(str.isascii, cells)):
        return True
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        return False
    return True
