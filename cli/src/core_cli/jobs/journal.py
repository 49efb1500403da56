"""A job's journal, which lists its complete blocks, and the output file that grows by them.

The journal is a file of JSON lines, ``OUT.journal``. The first has the identity of the job, and
each other one a complete block: ``{"rows": 256, "end": 81920, "crc": 123, ...}``, with its number
of rows, its end in the output, and the CRC-32 of its bytes. The last one of a finished job has size
and CRC-32 of the output, ``{"done": 90112, "crc": 456}``. A truncated or invalid line and all lines
after it are ignored.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

import click

from core.errors import OutputError, described
from core.system import outputs
from core.system.fields import Fields, integer_in
from core.system.limited_files import Refused, json_value
from core.system.terminal import visible
from core_cli.values import Cost

fcntl: Any = None
with contextlib.suppress(ImportError):  # not on Windows, where concurrent jobs are not detected
    import fcntl

_FIRST = b'{"job": '
_LONGEST = 2**26  # bytes of a line, enough for labels and a template
_MOST_BYTES = 2**27  # enough for 300 million rows, whose blocks fit in memory
_COSTS = len(fields(Cost))
_MOST_CRC = 2**32 - 1
_MOST_SECONDS = 1e9
_PIECE = 2**20


def journal_of(target: Path) -> Path:
    """Return the name of the journal of an output."""
    return target.with_name(f"{target.name}.journal")


@dataclass(frozen=True, slots=True)
class Block:
    """A complete block of the output. ``cost`` has the fields of `Cost`, for the summary."""

    rows: int
    end: int
    crc: int
    cost: tuple[int, ...] = ()
    seconds: float = 0.0


class Journal:
    """The journal of one output, locked as long as it is open.

    ``job`` is None if none was begun. ``done`` is the size in bytes of a finished output.
    ``foreign`` means that the file of this name is not a journal.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self.path = journal_of(target)
        self._forget()
        self._file = self._locked(target)
        self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Removed while locked: later it may be the journal of another job.
        if self._created and os.fstat(self._file.fileno()).st_size == 0:
            with contextlib.suppress(OSError):
                self.path.unlink()
        self._file.close()

    def begin_anew(self, job: dict[str, Any]) -> None:
        """Start the journal of this job from scratch, without any block of an earlier one."""
        self._file.truncate(0)
        self._forget(job)
        self._add({"job": job})

    def _forget(self, job: dict[str, Any] | None = None) -> None:
        self.job, self.foreign = job, False
        self.blocks: list[Block] = []
        self.done: int | None = None
        self._crc: int | None = None  # CRC-32 of the finished output; None in older journals
        self._ends: list[int] = []  # offsets of the ends of the first line and of each block's line

    def cut(self, count: int) -> None:
        """Drop all entries after the first ``count`` blocks."""
        self.blocks, self.done = self.blocks[:count], None
        self._ends = self._ends[: count + 1]
        self._file.truncate(self._ends[-1])  # atomic, even if the process is killed

    def add(self, block: Block) -> None:
        """Record that a block is complete in the output."""
        self._add(asdict(block))
        self.blocks.append(block)

    def finish(self, size: int) -> None:
        """Record that the output is finished, with its size in bytes."""
        self._crc = _crc_of(self._target)
        self._add({"done": size, "crc": self._crc})
        self.sync()
        self.done = size

    def changed(self) -> str:
        """Return the change in a finished output as text; empty without one.

        Reads the complete file: the CRC-32 takes a quarter of the time of the input's digest.
        """
        target = self._target
        size = target.stat().st_size if target.exists() else None
        if size != self.done:
            now = "is gone" if size is None else f"has {size} now"
            return f"was finished with {self.done} bytes, and {now}"
        if self._crc not in (None, _crc_of(target)):
            return "was finished with other bytes than it has now"
        return ""

    def sync(self) -> None:
        """Wait until what was written is on the disk."""
        os.fsync(self._file.fileno())

    def _read(self) -> None:
        """Read up to the first line that is truncated or invalid."""
        self._file.seek(0)
        first = self._file.readline(_LONGEST)
        # A journal may be truncated within its first line.
        self.foreign = not first.startswith(_FIRST[: len(first)])
        if self.foreign or not first.endswith(b"\n"):
            return
        with contextlib.suppress(Refused):
            job = dict(Fields(json_value(first)).table("job").values)
            self.job = cast("dict[str, Any]", job) if "command" in job else None
        if self.job is None:
            self.foreign = True
            return
        self._ends.append(len(first))
        with contextlib.suppress(Refused):
            while (line := self._file.readline(_LONGEST)).endswith(b"\n"):
                self._take(Fields(json_value(line)))

    def _take(self, entry: Fields) -> None:
        """Add the entry of a line. Raises `Refused` for a line that no job writes."""
        if entry.given("done"):
            crc = entry.integer("crc", high=_MOST_CRC) if entry.given("crc") else None
            self.done, self._crc = entry.integer("done"), crc
            return
        cost = tuple(integer_in(*item) for item in entry.items("cost"))
        if len(cost) > _COSTS:
            raise Refused("cost has too many numbers")
        block = Block(
            entry.integer("rows", 1),
            entry.integer("end", self.blocks[-1].end if self.blocks else 0),
            entry.integer("crc", high=_MOST_CRC),
            cost,
            entry.number("seconds", 0.0, _MOST_SECONDS),
        )
        self.blocks.append(block)
        self._ends.append(self._file.tell())

    def _add(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry).encode() + b"\n"
        self._file.write(line)  # at the end, as the file was opened
        self._file.flush()
        self._ends.append((self._ends[-1] if self._ends else 0) + len(line))

    def _locked(self, target: Path) -> IO[bytes]:
        """Return the file, opened for this process alone.

        Raises `click.UsageError` for a second one.
        """
        # Another job may remove its journal when it ends, so that a new file is needed.
        while True:
            self._created = not os.path.lexists(self.path)
            try:
                file = os.fdopen(outputs.opened(self.path, os.O_APPEND), "a+b")
            except OutputError:
                raise
            except OSError as error:
                raise click.UsageError(
                    f"Cannot write the journal {self.path} ({error.strerror or error}). Choose an "
                    "-o in a writable directory."
                ) from None
            if os.fstat(file.fileno()).st_size > _MOST_BYTES:
                file.close()
                raise OutputError(
                    f"{self.path} is not a job journal: it is larger than {_MOST_BYTES} "
                    "bytes. Choose another -o, or move the file."
                )
            if fcntl is None:
                return file

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                raise click.UsageError(
                    f"Another running job is writing {visible(str(target))}. Wait for it to end, "
                    "or choose another -o."
                ) from None
            except OSError:  # a file system without locks, such as some network shares
                return file

            # The lock is useful only on the file that has this name now.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                    return file
            file.close()


def _crc_of(file: Path) -> int:
    crc = 0
    with open(file, "rb") as stream:
        while piece := stream.read(_PIECE):
            crc = zlib.crc32(piece, crc)
    return crc


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
