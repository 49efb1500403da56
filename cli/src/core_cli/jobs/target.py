"""The output file of a job, which grows by complete blocks."""

from __future__ import annotations

import contextlib
import csv
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import click

from core.errors import described
from core.system import outputs


class Target:
    """A file that grows by blocks. ``end`` is the end of its last complete block.

    Raises `OutputError` for a link and for a file with a second name.
    """

    def __init__(self, path: Path) -> None:
        self.end = 0
        self.path = path
        self._file = os.fdopen(outputs.opened(path), "r+b", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def block(self, end: int, crc: int) -> bytes | None:
        """Return the next block, which ends at ``end``.

        None if the file has different bytes there.
        """
        if not self.end <= end <= os.fstat(self._file.fileno()).st_size:
            return None
        self._file.seek(self.end)
        data = b""
        while missing := end - self.end - len(data):
            part = self._file.read(missing)
            if not part:
                return None
            data += part
        if zlib.crc32(data) != crc:
            return None
        self.end = end
        return data

    def begin(self) -> None:
        """Truncate the file after its last complete block."""
        self._file.truncate(self.end)

    def add(self, data: bytes) -> int:
        """Write a block and return its CRC-32. A failed write is undone."""
        try:
            self._file.seek(self.end)
            rest = memoryview(data)
            while rest:
                rest = rest[self._write(rest) :]
        except BaseException:
            with contextlib.suppress(OSError):
                self._file.truncate(self.end)
            raise
        self.end += len(data)
        return zlib.crc32(data)

    def sync(self) -> None:
        """Wait until what was written is on the disk."""
        os.fsync(self._file.fileno())

    def _write(self, data: memoryview) -> int:
        return self._file.write(data) or 0


@contextlib.contextmanager
def rows_of_a_job(path: Path, advice: str) -> Iterator[None]:
    """Turn errors of reading an output that no job wrote into a usage error."""
    try:
        yield
    except (csv.Error, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise click.UsageError(
            f"{path} is not the output of a job ({described(error)}). {advice}"
        ) from error
