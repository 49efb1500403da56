"""Sources of rows: arguments, a file or stdin in any format; and the reading position."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import IO

import click

from core_cli.reading import (
    array_rows,
    json_rows,
    parquet_rows,
    recognising,
    table_rows,
)
from core_cli.reading.json_rows import FORM, Whole, are_requests
from core_cli.reading.recognising import is_file, looked_at, more_waits
from core_cli.reading.row import Fields, InputError, Row, decoded, lines, too_long

_PACKED = {"parquet": "Parquet", "xlsx": "Excel"}
"""Formats that are not text, and not read sequentially."""


class Source:
    """The rows of an input, its detected ``form``, and its ``size`` in bytes, if known."""

    def __init__(
        self,
        stream: IO[bytes],
        name: str,
        form: str,
        fields: Fields,
        requests: bool = False,
        encoding: str | None = None,
    ) -> None:
        self.name, self._file = name, stream
        if encoding is not None:
            from core_cli.reading import encoded

            stream = encoded.as_utf8(stream, encoded.check(encoding))
        head, self._stream = looked_at(stream, partial(recognising.is_decided_by, name, form))
        self._fields = fields
        self.form = recognising.form_of(name, head, form, fields)
        if form == "auto" and self.form == "jsonl" and requests and are_requests(head.data):
            self.form = FORM
        if title := _PACKED.get(self.form):
            if encoding is not None:
                raise click.UsageError(f"--encoding is for text, and {title} has its own.")
            if not is_file(stream):
                raise click.UsageError(
                    f"{title} cannot be read from a pipe. Pass the file with -i FILE."
                )
        known = self.form not in _PACKED and is_file(self._file)
        size = os.fstat(self._file.fileno()).st_size if known else 0
        self.size = size or None  # 0 for files in /proc

    def rows(self) -> Iterator[Row]:
        """Return the rows in order; they can be read once."""
        stream, name, fields = self._stream, self.name, self._fields
        if self.form == "text":
            return _rows_of_text(stream, name)
        if self.form == FORM:
            return json_rows.rows_of_lines(stream, name, Whole())
        if self.form == "jsonl":
            return json_rows.rows_of_lines(stream, name, fields)
        if self.form == "json":
            return array_rows.rows_of_array(stream, fields)
        if self.form == "parquet":
            return parquet_rows.rows_of_parquet(stream, name, fields)
        if self.form == "xlsx":
            from core_cli.reading import excel_rows

            return excel_rows.rows_of_excel(stream, name, fields)
        return table_rows.rows_of_table(stream, name, self.form, fields)

    def more_waits(self) -> bool:
        """Return whether a row can be read now; always true unless the input is a pipe."""
        return more_waits(self._stream)

    def position(self) -> int:
        """Number of bytes read so far."""
        return self._file.tell() if self.size is not None else 0


@contextmanager
def opened(
    name: str,
    form: str,
    fields: Fields,
    requests: bool = False,
    encoding: str | None = None,
) -> Iterator[Source]:
    """Open a file, or stdin as ``-``. Raises `click.UsageError` if it cannot be read.

    With ``requests``, lines of OpenAI's batch files have the format ``openai``, not JSON lines.
    ``encoding`` is that of a text; None is UTF-8.
    """
    if name == "-":
        with click.open_file(name, "rb") as stdin:
            yield Source(stdin, name, form, fields, requests, encoding)
        return
    with open(name, "rb") as stream:
        yield Source(stream, name, form, fields, requests, encoding)


def rows_of_arguments(prompts: Sequence[str]) -> Iterator[Row]:
    """Yield one row per argument."""
    for number, prompt in enumerate(prompts, 1):
        try:
            prompt.encode()
        except UnicodeEncodeError:  # bytes of the command line that are not UTF-8
            shown = prompt.encode(errors="replace").decode()
            problem = InputError(f"prompt {number} is not valid UTF-8.")
            yield Row(number, shown, error=problem, unit="prompt")
        else:
            yield Row(number, prompt, {"text": prompt}, unit="prompt")


def _rows_of_text(stream: IO[bytes], name: str) -> Iterator[Row]:
    for number, line in enumerate(lines(stream), 1):
        if not line.strip():
            continue
        if row := too_long(number, line, name):
            yield row
            continue
        text = decoded(number, line)
        yield text if isinstance(text, Row) else Row(number, text, {"text": text})
