"""Folders for the files that a check makes.

They are deleted when the check has ended, except those that the report of its failure names: the
calls that it shows can then be run again.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "core-check-"
_of_the_check: list[Path] = []


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield an empty folder. It outlives the block, until `settle` decides about it."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    _of_the_check.append(folder)
    yield folder


@atexit.register
def settle(report: str = "") -> None:
    """Delete the folders of a check that has ended, except those that its report names."""
    while _of_the_check:
        folder = _of_the_check.pop()
        if str(folder) not in report:
            shutil.rmtree(folder, ignore_errors=True)
