"""A job from a file to a file, with its progress in a journal.

Files that other programs wrote are not replaced.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from core.errors import OutputError
from core.system import outputs
from core_cli.jobs import identity
from core_cli.jobs.journal import Block, Journal, Target, journal_of, rows_of_a_job
from core_cli.reading.parquet_rows import pyarrow_parquet
from core_cli.rows.asker import Identities, RowAsker
from core_cli.values import Answered, Cost
from core_cli.writing import parquet
from core_cli.writing.encoders import Encoder

if TYPE_CHECKING:
    from core_cli.flags import RowFlags
    from core_cli.jobs.summary import Summary
    from core_cli.loading import Loaded
    from core_cli.reading.row import Row


_SYNC_SECONDS = 1.0


class Job:
    """An output and its progress. ``facts`` identify the job (`identity.identity`).

    A ``fresh`` job starts from scratch; the earlier output stays until then.
    """

    def __init__(
        self, path: Path, form: str, journal: Journal, facts: dict[str, Any], fresh: bool
    ) -> None:
        self.path, self.form = path, form
        self._journal, self._facts, self._fresh = journal, facts, fresh

    @property
    def finished(self) -> bool:
        """True if an earlier run has written all of the output."""
        return self._journal.done is not None and not self._fresh

    def check(self, *, resume: bool) -> None:
        """Raise if the output may not be written or resumed; a job that never began is fresh.

        Raises `OutputError` for files that are not the job's, and `click.UsageError`.
        """
        self._refuse_foreign()
        journal = self._journal
        if self._fresh:
            return
        if self.path.exists() and not resume:
            begun = "--resume to continue its job, or " if journal.job else ""
            raise click.UsageError(
                f"{self.path} already exists. Use {begun}--overwrite to start over."
            )

        # If the output was removed, there is nothing to resume and nothing to lose.
        if journal.job is None or not self._begun:
            self._fresh = True
        else:
            identity.check(journal.job, self._facts, str(self.path))

    def _refuse_foreign(self) -> None:
        refuse_foreign(self.path, self._journal)
        if self.form == "parquet" and not self.finished:
            refuse_foreign_rows(self.path, self._journal)

    @property
    def _begun(self) -> bool:
        """Return whether any output recorded in the journal exists."""
        if self._journal.done is not None:
            return self.path.exists() and self.path.stat().st_size == self._journal.done
        return self.path.exists() or self.lines.exists()

    def know(self, loaded: Loaded) -> None:
        """Add the model to the facts. Raises `click.UsageError` if it has changed."""
        self._facts.update(identity.of_model(loaded))
        if self._journal.job is not None and not self._fresh:
            identity.check(self._journal.job, self._facts, str(self.path))

    @contextmanager
    def opened(self, encoder: Encoder) -> Iterator[Writer]:
        """Open the output to write the missing blocks."""
        self._refuse_foreign()  # the model took time to load, and files may have changed
        if self._fresh:
            self._journal.begin_anew(self._facts)
            if self.lines != self.path:
                self.path.unlink(missing_ok=True)
        with Target(self.lines) as target:
            yield Writer(target, self._journal, encoder)

    @property
    def lines(self) -> Path:
        """File of the rows: the output or, for Parquet, the line file it is made from."""
        return self.path if self.form != "parquet" else rows_of(self.path)

    def finish(self, columns: tuple[str, ...] = ()) -> None:
        """Finish the output after the last row."""
        if self.form == "parquet":
            parquet.write(self.lines, self.path, columns)
        self._journal.finish(self.path.stat().st_size)
        self.tidy()

    def tidy(self) -> None:
        """Remove the line file of a finished output."""
        if self.lines != self.path:
            remove_rows(self.path, self._journal)


class Writer:
    """A writer that appends blocks to an output."""

    def __init__(self, target: Target, journal: Journal, encoder: Encoder) -> None:
        self._target, self._journal, self._encoder = target, journal, encoder
        self._synced = time.monotonic()

    def recall(
        self,
        blocks: Iterator[list[Row]],
        asker: RowAsker,
        summary: Summary,
        identities: Identities,
    ) -> int:
        """Read the complete blocks back; return the number of their rows.

        The first block that differs from the journal, and all after it, are written again.
        """
        rows = whole = 0
        for known in self._journal.blocks:
            data = self._target.block(known.end, known.crc)
            if data is None:
                break
            block = next(blocks, [])
            with rows_of_a_job(self._target.path, "Start over with --overwrite."):
                answers = self._encoder.answers(data)
            if len(block) != known.rows or len(answers) != known.rows:
                raise click.UsageError(
                    f"Cannot resume {self._target.path}: the input rows have changed. Start "
                    "over with --overwrite."
                )
            asker.recall(block, answers)
            identities.note(block)
            summary.add(block, [asker.kind.counted(answer) for answer in answers])
            summary.spend(Cost(*known.cost), known.seconds)
            rows, whole = rows + known.rows, whole + 1
        self._journal.cut(whole)
        self._target.begin()
        return rows

    def write(self, rows: Sequence[Answered], cost: Cost, seconds: float) -> None:
        """Write a block, then its entry in the journal."""
        crc = self._target.add(self._encoder.block(rows))
        self._journal.add(Block(len(rows), self._target.end, crc, astuple(cost), round(seconds, 4)))
        if time.monotonic() - self._synced >= _SYNC_SECONDS:
            self.sync()

    def end(self) -> None:
        """Write the end of the output, after the last row."""
        self._target.add(self._encoder.end())
        self.sync()

    def sync(self) -> None:
        """Sync the output to disk, then the journal."""
        self._target.sync()
        self._journal.sync()
        self._synced = time.monotonic()


@contextmanager
def opened(flags: RowFlags, facts: dict[str, Any]) -> Iterator[Job]:
    """Yield the job of these flags, locked.

    An existing output is an error without ``resume`` or ``overwrite``.
    Raises `OutputError` for files that another program wrote, and `click.UsageError`.
    """
    assert flags.output is not None
    path, form, source = _target(flags.output), flags.output_form, flags.file or "-"
    if form == "parquet":
        pyarrow_parquet()  # fails now rather than after the work
    for file in (path, journal_of(path), rows_of(path)):
        if os.path.exists(source) and file.exists() and file.samefile(source):
            raise click.UsageError(
                f"-o would overwrite the input file {source}. Choose another name for -o."
            )
    if path.exists() and not os.access(path, os.W_OK):
        raise click.UsageError(f"Permission denied: {path}. Choose another name for -o.")
    with Journal(path) as journal:
        job = Job(path, form, journal, facts, flags.overwrite)
        job.check(resume=flags.resume)
        yield job


def _target(name: str) -> Path:
    """Return the output file; for a link its target, which has the journal.

    Raises `click.UsageError` for a folder, and for a pipe, a device or a descriptor.
    """
    if outputs.is_stream(name) or os.path.isdir(name):
        raise click.UsageError(
            f"-o requires a regular file, because a job keeps a journal next to it; {name} is not "
            "one. To write to stdout, drop -o."
        )
    return Path(os.path.realpath(name)) if os.path.islink(name) else Path(name)


def check_input(name: str) -> None:
    """Raise `click.UsageError` for an input that cannot be read twice, as resuming requires."""
    if os.path.exists(name) and not os.path.isfile(name):
        raise click.UsageError(
            f"-o requires a regular input file, because resuming re-reads it; {name} is not one. "
            "Save the input to a file first, or drop -o."
        )


_PIECE = 1 << 20
_ADVICE = "Choose another -o, or move the file."


def rows_of(path: Path) -> Path:
    """Return the name of the line file that a Parquet file is made from."""
    return path.with_name(f"{path.name}.rows")


def refuse_foreign(path: Path, journal: Journal) -> None:
    """Raise `OutputError` if OUT or its journal was not written by a job."""
    if journal.foreign:
        raise OutputError(f"{journal.path} is not a job journal. {_ADVICE}")
    outputs.check_plain(path)
    if not _wrote_output(path, journal):
        raise OutputError(f"{path} {_reason(path, journal)} It is not replaced. {_ADVICE}")


def refuse_foreign_rows(path: Path, journal: Journal) -> None:
    """Raise `OutputError` if the line file of a Parquet file is not the job's."""
    rows = rows_of(path)
    outputs.check_plain(rows)
    if not _wrote_rows(path, journal):
        raise OutputError(
            f"{rows}, which this job needs for the rows of {path.name}, was not written by it. "
            f"It is not replaced. {_ADVICE}"
        )


def remove_rows(path: Path, journal: Journal) -> None:
    """Remove the line file of a finished Parquet file, if it is the job's."""
    rows = rows_of(path)
    if rows.is_file() and not rows.is_symlink() and _wrote_rows(path, journal):
        rows.unlink()


def _wrote_rows(path: Path, journal: Journal) -> bool:
    """Return whether the line file of a Parquet file is the job's, or missing."""
    rows = rows_of(path)
    if not _has_content(rows):
        return True
    if not _is_parquet(journal) or not _begins(rows, journal):
        return False
    return journal.done is None or (
        bool(journal.blocks) and os.path.getsize(rows) == journal.blocks[-1].end
    )


def _wrote_output(path: Path, journal: Journal) -> bool:
    if not _has_content(path):
        return True
    if journal.job is None:
        return False
    if journal.done is not None:
        return not journal.changed()
    return parquet.wrote(path) if _is_parquet(journal) else _begins(path, journal)


def _begins(file: Path, journal: Journal) -> bool:
    """Return whether a file begins with the job's first block, if the journal has one."""
    if not journal.blocks:
        return True
    first, crc = journal.blocks[0], 0
    rest = first.end
    with open(file, "rb") as stream:
        while rest and (piece := stream.read(min(rest, _PIECE))):
            crc, rest = zlib.crc32(piece, crc), rest - len(piece)
    return not rest and crc == first.crc


def _reason(path: Path, journal: Journal) -> str:
    if journal.job is None:
        return f"exists, but no journal ({journal.path.name}) shows that a job wrote it."
    if journal.done is not None:
        return f"{journal.changed()}."
    return f"does not match its journal ({journal.path.name})."


def _is_parquet(journal: Journal) -> bool:
    return journal.job is not None and journal.job.get("to") == "parquet"


def _has_content(file: Path) -> bool:
    return os.path.exists(file) and os.path.getsize(file) > 0
