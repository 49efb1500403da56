"""Rows of Parquet, row group by row group (pyarrow, the extra ``parquet``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

import click

from core_cli import reading
from core_cli.reading.row import Fields, InputError, Row

if TYPE_CHECKING:
    import pyarrow.parquet

_ROWS = 256
_BUFFER = 2**20


def opened(stream: IO[bytes], name: str) -> pyarrow.parquet.ParquetFile:
    """Return the file. Raises `click.UsageError` without pyarrow, or if it is not Parquet."""
    library = pyarrow_parquet()
    import pyarrow

    try:
        return library.ParquetFile(stream, buffer_size=_BUFFER)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise click.UsageError(f"{name} is not a complete Parquet file: {error}") from None


def pyarrow_parquet() -> Any:
    """Return the module ``pyarrow.parquet``. Raises `click.UsageError` if it is missing."""
    try:
        import pyarrow.parquet
    except ImportError:
        from core.plugins import install_command

        command = install_command("parquet")
        raise click.UsageError(f"Parquet requires pyarrow. Install it with: {command}") from None
    return pyarrow.parquet


def rows_of_parquet(stream: IO[bytes], name: str, fields: Fields) -> Iterator[Row]:
    """Yield the rows, numbered from 1. Raises `click.UsageError` for unusable columns."""
    file = opened(stream, name)
    columns = file.schema_arrow.names
    if twice := [column for column in columns if columns.count(column) > 1]:
        raise click.UsageError(f"{name} has two columns {twice[0]!r}. Rename one.")
    fields.check(1, _sample(file.schema_arrow), "row")

    import pyarrow

    number = 0
    try:
        for batch in file.iter_batches(batch_size=_ROWS):
            for row in _rows(number, batch, fields):
                number += 1
                yield row
    except (pyarrow.ArrowException, OSError) as error:
        problem = f"row {number + 1} and all rows after it cannot be read: {error}"
        yield Row(number + 1, error=InputError(problem), unit="row")


def _sample(columns: Any) -> dict[str, object]:
    """Return a record with the columns of a schema, and the fields of their structs, as texts."""
    import pyarrow

    return {
        column.name: _sample(column.type) if pyarrow.types.is_struct(column.type) else ""
        for column in columns
    }


def _rows(before: int, batch: Any, fields: Fields) -> Iterator[Row]:
    """Yield the rows of a batch after ``before`` others; one by one if any is bad or long."""
    import pyarrow

    count, size = batch.num_rows, batch.nbytes
    try:
        if size > reading.MAX_LINE_BYTES:
            raise InputError(f"it is longer than {reading.MAX_LINE_BYTES} bytes")
        records = batch.to_pylist()
    except (ValueError, OverflowError, pyarrow.ArrowException, InputError) as error:
        if count == 1:
            reason = "it is not valid UTF-8" if isinstance(error, UnicodeError) else error
            problem = InputError(f"row {before + 1} cannot be read: {reason}.")
            yield Row(before + 1, error=problem, unit="row")
            return
        for place in range(count):
            yield from _rows(before + place, batch.slice(place, 1), fields)
    else:
        for number, record in enumerate(records, before + 1):
            yield fields.row(number, record, "row", size // count)
