"""Checks of ownership: a file that the journal of a job does not know is never replaced.

A job has OUT, ``OUT.journal``, and for Parquet ``OUT.rows``, the lines of which OUT is made.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import OutputError
from core.system import outputs
from core_cli.writing import parquet

if TYPE_CHECKING:
    from core_cli.jobs.journal import Journal

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
