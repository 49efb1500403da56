"""A Parquet file of lines of JSON, made when all of them are there: Parquet cannot grow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from core.cli.reading.parquet_rows import pyarrow_parquet
from core.errors import OutputError
from core.system import outputs

_ROWS = 16_384
_MARK = {b"core.job": b"1"}
_FILE = outputs.Kind("a Parquet file", re.compile(b"PAR1"))


class _Rounded:
    """Stands for the type of integers that a double does not hold."""


def write(lines: Path, output: Path, columns: tuple[str, ...]) -> None:
    """Make the file of flat records; it is not there before it is whole.

    A column has the one type that all its values have, or else texts: JSON for what is not one.
    ``columns`` are those of a file without rows. Raises `OutputError` for a file that is there and
    that no job has written.
    """
    records = (record for batch in _batches(lines) for record in batch)
    write_records(output, _schema(lines, columns), records)


def write_records(output: Path, schema: Any, records: Iterable[Mapping[str, object]]) -> None:
    """Make the file of records whose values fit the schema's types, or are to be texts there."""
    import pyarrow

    if output.exists() and not wrote(output):
        raise OutputError(
            f"{output} came there meanwhile, and no job has written it. Move it away, and use "
            "--resume."
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
    """Return whether a double holds an integer of 64 bits as it is."""
    return float(value) == value


def _schema(lines: Path, columns: tuple[str, ...]) -> Any:
    import pyarrow

    kinds: dict[str, set[type]] = {}
    for records in _batches(lines):
        for record in records:
            for name, value in record.items():
                kinds.setdefault(name, set()).add(_kind(value))
    found = {name: _type(kinds.get(name, set())) for name in kinds or columns}
    return pyarrow.schema(found)


def _type(kinds: set[type]) -> Any:
    """Return the type that holds all values of these kinds as they are."""
    import pyarrow

    kinds = kinds - {type(None)}
    if kinds and kinds <= {int, _Rounded}:
        return pyarrow.int64()
    if float in kinds and kinds <= {int, float}:
        return pyarrow.float64()
    return pyarrow.bool_() if kinds == {bool} else pyarrow.string()


def _kind(value: object) -> type:
    """Return a value's type; of an integer that Parquet's do not hold, that of a text."""
    if type(value) is not int:
        return type(value)
    if not -(2**63) <= value < 2**63:
        return str
    return int if is_exact(value) else _Rounded


def _fitted(record: Mapping[str, object], schema: Any) -> dict[str, object]:
    """Return the record with texts, and with doubles, where the column has them."""
    import pyarrow

    row = dict(record)
    for field in schema:
        value = row.get(field.name)
        if field.type == pyarrow.string() and value is not None and not isinstance(value, str):
            row[field.name] = json.dumps(value, ensure_ascii=False)
        elif field.type == pyarrow.float64() and isinstance(value, int):
            row[field.name] = float(value)  # pyarrow refuses those beyond 2**53
    return row


def _batches(lines: Path) -> Iterator[list[dict[str, Any]]]:
    with open(lines, "rb") as stream:
        while batch := [json.loads(line) for line in islice(stream, _ROWS)]:
            yield batch
