"""Rows of Parquet, row group by row group (pyarrow, the extra ``parquet``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

import click

from core.cli.reading.fields import Fields
from core.cli.reading.row import Row
from core.known_plugins import install_command

if TYPE_CHECKING:
    import pyarrow.parquet

_ROWS = 1024


def opened(stream: IO[bytes], name: str) -> pyarrow.parquet.ParquetFile:
    """The file. Raises `click.UsageError` without pyarrow, or for what is no Parquet."""
    library = pyarrow_parquet()
    import pyarrow

    try:
        return library.ParquetFile(stream)
    except (pyarrow.ArrowException, OSError) as error:
        raise click.UsageError(f"{name} is not a whole Parquet file: {error}") from None


def pyarrow_parquet() -> Any:
    """The module ``pyarrow.parquet``. Raises `click.UsageError` where it is missing."""
    try:
        import pyarrow.parquet
    except ImportError:
        command = install_command("parquet")
        raise click.UsageError(f"Parquet needs pyarrow: {command}") from None
    return pyarrow.parquet


def rows_of_parquet(stream: IO[bytes], name: str, fields: Fields) -> Iterator[Row]:
    """One row per row, numbered from 1."""
    number = 0
    for batch in opened(stream, name).iter_batches(batch_size=_ROWS):
        for record in batch.to_pylist():
            number += 1
            yield fields.row(number, record, "row")
