"""Writes a Parquet file from lines of JSON at the end of a job: Parquet cannot be appended to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from core.errors import OutputError
from core.system import outputs
from core_cli.reading.parquet_rows import pyarrow_parquet

_ROWS = 16_384
_MARK = {b"core.job": b"1"}
_FILE = outputs.Kind("a Parquet file", re.compile(b"PAR1"))


class _Rounded:
    """A marker for the type of integers that a double cannot represent."""


def write(lines: Path, output: Path, columns: tuple[str, ...]) -> None:
    """Write the file from flat records, atomically.

    A column has the common type of its values, else texts, with JSON for other values.
    ``columns`` are used for a file without rows. Raises `OutputError` for an existing file that no
    job has written.
    """
    records = (record for batch in _batches(lines) for record in batch)
    write_records(output, _schema(lines, columns), records)


def write_records(output: Path, schema: Any, records: Iterable[Mapping[str, object]]) -> None:
    """Write the file from records whose values fit the schema or become texts."""
    import pyarrow

    if output.exists() and not wrote(output):
        raise OutputError(
            f"{output} was created by another program during the job. Move it, then use --resume."
        )
    source = iter(records)
    marked = schema.with_metadata(_MARK)
    with (
        outputs.draft(output, _FILE) as partial,
        pyarrow_parquet().ParquetWriter(partial, marked) as writer,
    ):
        while rows := [_fitted(record, schema) for record in islice(source, _ROWS)]:
            writer.write_table(pyarrow.Table.from_pylist(rows, marked))


def wrote(file: Path) -> bool:
    """Return whether a job has written this Parquet file."""
    import pyarrow

    try:
        metadata = pyarrow_parquet().read_schema(file).metadata or {}
    except (pyarrow.ArrowException, OSError, ValueError):
        return False
    return metadata.items() >= _MARK.items()


def is_exact(value: int) -> bool:
    """Return whether a double represents a 64-bit integer exactly."""
    return float(value) == value


def _schema(lines: Path, columns: tuple[str, ...]) -> Any:
    import pyarrow

    kinds: dict[str, set[type]] = {}
    for records in _batches(lines):
        for record in records:
            for name, value in record.items():
                kinds.setdefault(name, set()).add(_kind(value))
    types = {name: _type(kinds.get(name, set())) for name in kinds or columns}
    return pyarrow.schema(types)


def _type(kinds: set[type]) -> Any:
    """Return the type that represents all values of these kinds exactly."""
    import pyarrow

    kinds = kinds - {type(None)}
    if kinds and kinds <= {int, _Rounded}:
        return pyarrow.int64()
    if float in kinds and kinds <= {int, float}:
        return pyarrow.float64()
    return pyarrow.bool_() if kinds == {bool} else pyarrow.string()


def _kind(value: object) -> type:
    """Return a value's type; text for an integer that Parquet cannot represent."""
    if type(value) is not int:
        return type(value)
    if not -(2**63) <= value < 2**63:
        return str
    return int if is_exact(value) else _Rounded


def _fitted(record: Mapping[str, object], schema: Any) -> dict[str, object]:
    """Return the record with values converted to texts or doubles, as the column requires."""
    import pyarrow

    row = dict(record)
    for field in schema:
        value = row.get(field.name)
        if field.type == pyarrow.string() and value is not None and not isinstance(value, str):
            row[field.name] = json.dumps(value, ensure_ascii=False)
        elif field.type == pyarrow.float64() and isinstance(value, int):
            row[field.name] = float(value)  # pyarrow rejects integers beyond 2**53
    return row


def _batches(lines: Path) -> Iterator[list[dict[str, Any]]]:
    with open(lines, "rb") as stream:
        while batch := [json.loads(line) for line in islice(stream, _ROWS)]:
            yield batch
