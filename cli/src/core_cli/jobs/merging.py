"""Merges the outputs of all shards of a job, in input order."""

from __future__ import annotations

import csv
import heapq
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any

import click

from core.system import outputs
from core.system.fields import integer_in, items_in
from core.system.limited_files import Refused
from core_cli.jobs.job import refuse_foreign
from core_cli.jobs.journal import Journal, journal_of, rows_of_a_job
from core_cli.reading import form_of_name
from core_cli.reading.parquet_rows import pyarrow_parquet
from core_cli.writing import parquet
from core_cli.writing.answers import LINE
from core_cli.writing.encoders import LONGEST_CELL, table_lines

_OUTPUT = outputs.Kind("the output of a job", re.compile(b""))  # the journal says which job
_SEPARATORS = {"csv": ",", "tsv": "\t"}
Numbered = tuple[int, Any]


def merge(output: Path, parts: Sequence[Path], overwrite: bool = False) -> int:
    """Write the rows of all shards to ``output`` and its journal; return their number.

    Raises `click.UsageError` for shards that are incomplete, missing or of different jobs, and
    for an output that exists; `OutputError` for one that no job has written.
    """
    parts, job = _checked(parts)
    form = str(job["to"])
    if form_of_name(str(output)) not in (form, None):
        raise click.UsageError(f"Output must be {form}, like the shards; {output} is not.")
    outputs.check_file(output)
    target = outputs.check(output, _OUTPUT)
    for part in parts:
        for file in (part, journal_of(part)):
            if target.exists() and target.samefile(file):
                raise click.UsageError(
                    f"{output} is one of the shards. Choose another output name."
                )
    with Journal(target) as journal:
        refuse_foreign(target, journal)
        if target.exists() and not overwrite:
            raise click.UsageError(f"{output} already exists. Use --overwrite to replace it.")
        columns = _columns(parts[0], form)
        sorted_rows = (_sound(part, _rows(part, form, columns)) for part in parts)
        rows = _Counted(heapq.merge(*sorted_rows, key=lambda row: row[0]))
        _write(target, form, columns, parts, rows)
        journal.begin_anew({**job, "shard": None})
        journal.finish(target.stat().st_size)
    return rows.count


class _Counted:
    """An iterable of rows without their numbers, which counts them."""

    def __init__(self, rows: Iterable[Numbered]) -> None:
        self.count = 0
        self._rows = rows

    def __iter__(self) -> Iterator[Any]:
        for _, row in self._rows:
            self.count += 1
            yield row


def _checked(parts: Sequence[Path]) -> tuple[list[Path], dict[str, Any]]:
    """Return the shards in order, and their job without the shard number."""
    found: dict[int, Path] = {}
    first: dict[str, Any] | None = None
    whole = 1
    for part in parts:
        with Journal(part) as journal:
            job, done = journal.job, journal.done
            reason = journal.changed() if done is not None else ""
        if job is None:
            raise click.UsageError(f"{part} is not the output of a job: its journal is missing.")
        if done is None:
            raise click.UsageError(f"Shard {part} is incomplete. Finish it with --resume.")
        if reason:
            raise click.UsageError(f"{part} {reason}. Run that shard again.")

        number, whole = _shard(part, job)
        first = first or job
        if changed := [name for name in job if job[name] != first.get(name)]:
            raise click.UsageError(
                f"{part} belongs to a different job than {parts[0]}: {changed[0]} differs."
            )
        if number in found:
            raise click.UsageError(f"Shard {number} is given twice: {found[number]} and {part}.")
        found[number] = part
    missing = next((number for number in range(1, whole + 1) if number not in found), None)
    if missing is not None:
        raise click.UsageError(f"Shard {missing} of {whole} is missing.")
    assert first is not None
    return [found[number] for number in sorted(found)], first


def _shard(part: Path, job: dict[str, Any]) -> tuple[int, int]:
    """Remove the shard number and the number of shards from a job, and return them."""
    try:
        shard = items_in(job.pop("shard", None) or [1, 1], "shard")
        number, whole = (integer_in(*item, low=1) for item in shard)
    except (Refused, ValueError) as error:
        raise click.UsageError(
            f"The journal of {part} has no valid shard number ({error}). Run that shard again."
        ) from None
    return number, whole


def _sound(part: Path, rows: Iterator[Numbered]) -> Iterator[Numbered]:
    """Yield the rows of a shard. Raises `click.UsageError` if it is not the output of a job."""
    with rows_of_a_job(part, "Run that shard again."):
        yield from rows


def _columns(part: Path, form: str) -> list[str]:
    """Return the columns of the merged table: those of the first shard."""
    if form not in ("csv", "tsv"):
        return []
    csv.field_size_limit(LONGEST_CELL)
    with open(part, newline="", encoding="utf-8") as stream:
        return next(csv.reader(stream, delimiter=_SEPARATORS[form]))


def _rows(part: Path, form: str, columns: Sequence[str]) -> Iterator[Numbered]:
    """Yield the rows of a shard, each with its line number in the input."""
    if form == "parquet":
        for batch in pyarrow_parquet().ParquetFile(part).iter_batches(batch_size=1024):
            for record in batch.to_pylist():
                yield record[LINE], record
    elif form in ("csv", "tsv"):
        with open(part, newline="", encoding="utf-8") as stream:
            reader = csv.reader(stream, delimiter=_SEPARATORS[form])

            # Each shard has the columns of its own first rows.
            mine = {name: place for place, name in enumerate(next(reader))}
            places = [mine.get(name) for name in columns]
            for cells in reader:
                yield int(cells[mine[LINE]]), ["" if n is None else cells[n] for n in places]
    elif form == "text":
        raise click.UsageError(
            "Text shards have no line numbers and cannot be merged. Use another --to."
        )
    else:
        with open(part, "rb") as stream:
            for line in stream:
                line = line.rstrip(b",\n")
                if line not in (b"[", b"]", b"[]"):
                    yield json.loads(line)[LINE], line


def _write(
    output: Path, form: str, columns: Sequence[str], parts: Sequence[Path], rows: Iterable[Any]
) -> None:
    if form == "parquet":
        parquet.write_records(output, _schema(parts), rows)
        return
    with outputs.draft(output, _OUTPUT) as partial:
        if form in ("csv", "tsv"):
            with open(partial, "w", newline="", encoding="utf-8") as table:
                lines = (table_lines([row], _SEPARATORS[form]) for row in chain([columns], rows))
                table.writelines(lines)
        else:
            with open(partial, "wb") as stream:
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


def _schema(parts: Sequence[Path]) -> Any:
    """Return the columns of the first shard, each with a type that fits all shards."""
    import pyarrow

    files = [pyarrow_parquet().ParquetFile(part) for part in parts]
    text, integer, number = pyarrow.string(), pyarrow.int64(), pyarrow.float64()
    types = {}
    for name in files[0].schema_arrow.names:
        having = [file for file in files if _tells(file, name)]
        found = {file.schema_arrow.field(name).type for file in having}
        if found == {integer, number}:
            integers = [f for f in having if f.schema_arrow.field(name).type == integer]
            exact = all(_is_exact(file, name) for file in integers)
            types[name] = number if exact else text
        else:
            types[name] = found.pop() if len(found) == 1 else text
    return pyarrow.schema(types)


def _is_exact(file: Any, name: str) -> bool:
    """Return whether a double represents every integer of a column exactly."""
    for batch in file.iter_batches(columns=[name]):
        values = batch.column(0).drop_null().to_pylist()
        if not all(map(parquet.is_exact, values)):
            return False
    return True


def _tells(file: Any, name: str) -> bool:
    """Return whether a column exists and has a value.

    An empty column's type has no meaning.
    """
    names = file.schema_arrow.names
    if name not in names:
        return False
    groups = (file.metadata.row_group(n) for n in range(file.metadata.num_row_groups))
    columns = [(group.num_rows, group.column(names.index(name))) for group in groups]
    told = [(count, column.statistics) for count, column in columns]
    return any(facts is None or count > facts.null_count for count, facts in told)
