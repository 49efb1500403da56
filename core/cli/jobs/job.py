"""A job: rows from a file into a file. What is done is in the journal, and is done once."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from core.cli.jobs import identity, owned
from core.cli.jobs.journal import Block, Journal, journal_of
from core.cli.jobs.target import Target, rows_of_a_job
from core.cli.reading.forms import FORMS, form_of_name
from core.cli.reading.parquet_rows import pyarrow_parquet
from core.cli.rows.bulk import Answered, Cost, RowAsker
from core.cli.rows.identities import Identities
from core.cli.secret_arguments import public_arguments
from core.cli.writing import parquet
from core.cli.writing.encoders import Encoder
from core.system import outputs

if TYPE_CHECKING:
    from core.cli.jobs.summary import Summary
    from core.cli.loading import Loaded
    from core.cli.reading.row import Row

_SYNC_SECONDS = 1.0


class Job:
    """One output, and how far it is. ``facts`` are what the job is (`identity.identity`).

    A ``fresh`` one begins anew; what an earlier one wrote stays until it does.
    """

    def __init__(
        self, path: Path, form: str, journal: Journal, facts: dict[str, Any], fresh: bool
    ) -> None:
        self.path, self.form = path, form
        self._journal, self._facts, self._fresh = journal, facts, fresh

    @property
    def finished(self) -> bool:
        """Whether an earlier run has written all of it."""
        return self._journal.done is not None and not self._fresh

    def check(self, *, resume: bool) -> None:
        """Raise where it may not be written, or cannot be resumed; where it never began, begin.

        Raises `OutputError` for files that are not the job's, and `click.UsageError`.
        """
        self._refuse_foreign()
        journal = self._journal
        if self._fresh:
            return
        if self.path.exists() and not resume:
            begun = " It is part of a job: --resume continues it." if journal.job else ""
            raise click.UsageError(f"{self.path} exists.{begun} --overwrite replaces it.")

        # Where somebody took the output away, there is nothing to resume, and nothing to lose.
        if journal.job is None or not self._begun:
            self._fresh = True
        else:
            identity.check(journal.job, self._facts, str(self.path))

    def _refuse_foreign(self) -> None:
        owned.refuse_foreign(self.path, self._journal)
        if self.form == "parquet" and not self.finished:
            owned.refuse_foreign_rows(self.path, self._journal)

    @property
    def _begun(self) -> bool:
        """Return whether any of the output that the journal knows is there."""
        if self._journal.done is not None:
            return self.path.exists() and self.path.stat().st_size == self._journal.done
        return self.path.exists() or self.lines.exists()

    def know(self, loaded: Loaded) -> None:
        """Add which model it is. Raises `click.UsageError` where it was another one before."""
        self._facts.update(identity.of_model(loaded))
        if self._journal.job is not None and not self._fresh:
            identity.check(self._journal.job, self._facts, str(self.path))

    @contextmanager
    def opened(self, encoder: Encoder) -> Iterator[Writer]:
        """Open the output, to write what is missing."""
        self._refuse_foreign()  # the model took its time to load
        if self._fresh:
            self._journal.begin_anew(self._facts)
            if self.lines != self.path:
                self.path.unlink(missing_ok=True)
        with Target(self.lines) as target:
            yield Writer(target, self._journal, encoder)

    @property
    def lines(self) -> Path:
        """Where the rows go: the output; for Parquet a file of lines, of which it is made."""
        return self.path if self.form != "parquet" else owned.rows_of(self.path)

    def finish(self, columns: tuple[str, ...] = ()) -> None:
        """All rows are written."""
        if self.form == "parquet":
            parquet.write(self.lines, self.path, columns)
        self._journal.finish(self.path.stat().st_size)
        self.tidy()

    def tidy(self) -> None:
        """Take away the lines of which a finished output was made."""
        if self.lines != self.path:
            owned.remove_rows(self.path, self._journal)


class Writer:
    """Writes blocks behind those that are there."""

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
        """Go past the blocks that are whole, and learn from them; gives the number of their rows.

        The first that is not as the journal has it, and all behind it, are written anew.
        """
        rows = whole = 0
        for known in self._journal.blocks:
            data = self._target.block(known.end, known.crc)
            if data is None:
                break
            block = next(blocks, [])
            with rows_of_a_job(self._target.path, "--overwrite writes it anew."):
                answers = self._encoder.answers(data)
            if len(block) != known.rows or len(answers) != known.rows:
                raise click.UsageError("The input has other rows than when the job began.")
            asker.recall(block, answers)
            identities.note(block)
            summary.add(block, [asker.kind.counted(answer) for answer in answers])
            summary.spend(Cost(*known.cost), known.seconds)
            rows, whole = rows + known.rows, whole + 1
        self._journal.cut(whole)
        self._target.begin()
        return rows

    def write(self, rows: Sequence[Answered], cost: Cost, seconds: float) -> None:
        """Write a block, then that it is whole."""
        crc = self._target.add(self._encoder.block(rows))
        self._journal.add(Block(len(rows), self._target.end, crc, astuple(cost), round(seconds, 4)))
        if time.monotonic() - self._synced >= _SYNC_SECONDS:
            self.sync()

    def end(self) -> None:
        """Write what stands behind the last row."""
        self._target.add(self._encoder.end())
        self.sync()

    def sync(self) -> None:
        """Wait until all is on the disk: the output first, then what the journal says of it."""
        self._target.sync()
        self._journal.sync()
        self._synced = time.monotonic()


@contextmanager
def opened(flags: Mapping[str, Any], facts: dict[str, Any]) -> Iterator[Job]:
    """Yield the job that the flags ask for, locked.

    An output that exists is refused, unless ``resume`` continues it or ``overwrite`` replaces it.
    Raises `OutputError` for files that something else wrote, and `click.UsageError`.
    """
    path, form = _target(flags["output"]), form_of_output(flags)
    if form == "parquet":
        pyarrow_parquet()  # or it would be missed when all the work is done
    for file in (path, journal_of(path), owned.rows_of(path)):
        if os.path.exists(flags["file"]) and file.exists() and file.samefile(flags["file"]):
            raise click.UsageError(
                f"{flags['file']} is the input, and -o would write to it. Give another name with "
                "-o."
            )
    if path.exists() and not os.access(path, os.W_OK):
        raise click.UsageError(f"{path} may not be written. Give another name with -o.")
    with Journal(path) as journal:
        job = Job(path, form, journal, facts, flags["overwrite"])
        job.check(resume=flags["resume"])
        yield job


def _target(name: str) -> Path:
    """Return the file that is written: of a link the one that it leads to, which has one journal.

    Raises `click.UsageError` for a folder, and for a pipe, a device or a descriptor.
    """
    if outputs.is_stream(name) or os.path.isdir(name):
        raise click.UsageError(
            f"{name} is not a regular file, and a job has a journal beside its output. To write to "
            "stdout, leave -o away."
        )
    return Path(os.path.realpath(name)) if os.path.islink(name) else Path(name)


def check_input(name: str) -> None:
    """Raise `click.UsageError` for what can be read only once: a job reads it again to go on."""
    if os.path.exists(name) and not os.path.isfile(name):
        raise click.UsageError(
            f"{name} is no regular file, and a job that goes on reads its rows once more. Write "
            "them to a file first, or leave -o away."
        )


def form_of_output(flags: Mapping[str, Any]) -> str:
    """The form that is written: as asked, or by the output's name, or as JSON lines."""
    asked = flags["to"] or ("jsonl" if flags["as_json"] else None)
    form = asked or form_of_name(flags["output"] or "")
    assert form is None or form in FORMS
    return form or ("text" if str(flags["output"]).endswith(".txt") else "jsonl")


def command_to_go_on() -> str:
    """The command line of this run, as one that goes on."""
    # Behind a "--" the flag would be a prompt; no prompts are given with -i.
    dropped = ("--overwrite", "--resume", "--")
    arguments, variables = public_arguments(sys.argv[1:])
    kept = [argument for argument in arguments if argument not in dropped]
    return variables + " ".join(map(quoted, ["infer-cli", *kept, "--resume"]))


def quoted(argument: str) -> str:
    """The argument for a shell, on one line and without what a terminal obeys."""
    if argument.isprintable():
        return shlex.quote(argument)
    escaped = "".join(
        character
        if character.isascii() and character.isprintable() and character not in "'\\"
        else "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))
        for character in argument
    )
    return f"$'{escaped}'"
