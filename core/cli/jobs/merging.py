"""The outputs of all parts of a job, made one again in the order of the input."""

from __future__ import annotations

import csv
import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import click

from core.cli.jobs.journal import Journal
from core.cli.reading.forms import form_of_name
from core.cli.reading.lines import lines
from core.cli.writing.records import LINE
from core.cli.writing.tables import table_lines

Numbered = tuple[int, Any]


def merge(output: Path, parts: Sequence[Path]) -> int:
    """Write the rows of all parts to ``output``; gives their number.

    Raises `click.UsageError` for parts that are not finished, not of one job, or not all of it.
    """
    _check(parts)
    form = form_of_name(str(parts[0])) or "jsonl"
    if form_of_name(str(output)) not in (form, None):
        raise click.UsageError(f"The parts are {form}, and so has {output} to be.")
    partial = output.with_name(f"{output.name}.partial")
    merged = heapq.merge(*(_rows(part, form) for part in parts), key=lambda row: row[0])
    rows = _Counted(merged)
    _write(partial, form, parts[0], rows)
    partial.replace(output)
    return rows.count


class _Counted:
    """Rows without their numbers, counted as they go."""

    def __init__(self, rows: Iterable[Numbered]) -> None:
        self.count = 0
        self._rows = rows

    def __iter__(self) -> Iterator[Any]:
        for _, row in self._rows:
            self.count += 1
            yield row


def _check(parts: Sequence[Path]) -> None:
    seen: dict[int, Path] = {}
    first: dict[str, Any] | None = None
    whole = 1
    for part in parts:
        with Journal(part) as journal:
            job, done = journal.job, journal.done
        if job is None:
            raise click.UsageError(f"{part} has no journal: it is not the output of a job.")
        if not done:
            raise click.UsageError(f"{part} is not finished. Go on with it by --resume.")

        number, whole = job.pop("shard") or (1, 1)
        first = first or job
        if changed := [name for name in job if job[name] != first.get(name)]:
            raise click.UsageError(f"{part} is of another job than {parts[0]}: its {changed[0]}.")
        if number in seen:
            raise click.UsageError(f"Part {number} is there twice: {seen[number]} and {part}.")
        seen[number] = part
    if missing := [number for number in range(1, whole + 1) if number not in seen]:
        raise click.UsageError(f"Of these, part {missing[0]} of {whole} is missing.")


def _rows(part: Path, form: str) -> Iterator[Numbered]:
    """The rows of a part, each with the line of the input that it stands for."""
    if form == "parquet":
        from core.cli.reading.parquet_rows import pyarrow_parquet

        for batch in pyarrow_parquet().ParquetFile(part).iter_batches(batch_size=1024):
            for record in batch.to_pylist():
                yield record[LINE], record
    elif form in ("csv", "tsv"):
        with open(part, newline="", encoding="utf-8") as stream:
            reader = csv.reader(stream, delimiter="\t" if form == "tsv" else ",")
            column = next(reader, [LINE]).index(LINE)
            for cells in reader:
                yield int(cells[column]), cells
    elif form == "text":
        raise click.UsageError("Parts of text have no line numbers, and cannot be merged.")
    else:
        with open(part, "rb") as stream:
            for line in lines(stream):
                line = line.rstrip(b",\n")
                if line not in (b"[", b"]", b"[]"):
                    yield json.loads(line)[LINE], line


def _write(output: Path, form: str, first: Path, rows: Iterable[Any]) -> None:
    if form == "parquet":
        _write_parquet(output, first, rows)
    elif form in ("csv", "tsv"):
        separator = "\t" if form == "tsv" else ","
        with open(first, newline="", encoding="utf-8") as header:
            columns = next(csv.reader(header, delimiter=separator), [LINE])
        with open(output, "w", newline="", encoding="utf-8") as table:
            table.writelines(table_lines([row], separator) for row in chain([columns], rows))
    else:
        with open(output, "wb") as stream:
            _write_lines(stream, form == "json", rows)


def _write_lines(stream: IO[bytes], array: bool, rows: Iterable[bytes]) -> None:
    if not array:
        stream.writelines(row + b"\n" for row in rows)
        return
    before = b"[\n"
    for row in rows:
        stream.write(before + row)
        before = b",\n"
    stream.write(b"[]\n" if before == b"[\n" else b"\n]\n")


def _write_parquet(output: Path, first: Path, rows: Iterable[dict[str, Any]]) -> None:
    import pyarrow

    from core.cli.reading.parquet_rows import pyarrow_parquet

    library, source = pyarrow_parquet(), iter(rows)
    schema = library.read_schema(first)
    with library.ParquetWriter(output, schema) as writer:
        while batch := list(islice(source, 16_384)):
            writer.write_table(pyarrow.Table.from_pylist(batch, schema))
