"""A Parquet file of lines of JSON, made when all of them are there: Parquet cannot grow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from core.cli.reading.parquet_rows import pyarrow_parquet

_ROWS = 16_384


def write(lines: Path, output: Path, columns: tuple[str, ...]) -> None:
    """Make the file of flat records; it is not there before it is whole.

    A column has the one type that all its values have, or else texts: JSON for what is none.
    ``columns`` are those of a file without rows.
    """
    library = pyarrow_parquet()
    import pyarrow

    schema = pyarrow.schema(_types(lines, columns))
    partial = output.with_name(f"{output.name}.partial")
    with library.ParquetWriter(partial, schema) as writer:
        for records in _batches(lines):
            rows = [fitted(record, schema) for record in records]
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
    partial.replace(output)


def _types(lines: Path, columns: tuple[str, ...]) -> dict[str, Any]:
    import pyarrow

    found: dict[str, set[type]] = {}
    for records in _batches(lines):
        for record in records:
            for name, value in record.items():
                found.setdefault(name, set()).add(_kind(value))

    known = {int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    types: dict[str, Any] = dict.fromkeys(found or columns, pyarrow.string())
    for name, kinds in found.items():
        kinds -= {type(None)} | ({int} if float in kinds else set())
        if len(kinds) == 1:
            types[name] = known.get(kinds.pop(), pyarrow.string())
    return types


def _kind(value: object) -> type:
    """Its type; of a number that Parquet's integers do not hold that of a text."""
    return str if type(value) is int and not -(2**63) <= value < 2**63 else type(value)


def fitted(record: Mapping[str, object], schema: Any) -> dict[str, object]:
    """The record with texts where the column has them."""
    import pyarrow

    row = dict(record)
    for field in schema:
        value = row.get(field.name)
        if field.type == pyarrow.string() and value is not None and not isinstance(value, str):
            row[field.name] = json.dumps(value, ensure_ascii=False)
    return row


def _batches(lines: Path) -> Iterator[list[dict[str, Any]]]:
    with open(lines, "rb") as stream:
        while batch := [json.loads(line) for line in islice(stream, _ROWS)]:
            yield batch
