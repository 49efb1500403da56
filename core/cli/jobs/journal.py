"""The journal beside an output: which job writes it, and which blocks of it are whole.

A file of JSON lines, ``OUT.journal``. The first says what the job is; each other one stands for a
block that was written: ``{"rows": 256, "end": 81920, "crc": 123}``, its rows, where it ends in the
output, and the CRC-32 of its bytes. The last one of a finished job is ``{"done": true}``. A line
that was torn, and all behind it, counts as not written.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import click

from core.system.visible import visible

fcntl: Any = None
with contextlib.suppress(ImportError):  # Windows has none: there, two jobs are not kept apart
    import fcntl


@dataclass(frozen=True, slots=True)
class Block:
    """A block that is whole in the output. ``tokens`` are those of `Cost`, for the summary."""

    rows: int
    end: int
    crc: int
    cost: tuple[int, ...] = ()
    seconds: float = 0.0


class Journal:
    """The journal of one output, locked as long as it is open."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(f"{target.name}.journal")
        self.job: dict[str, Any] | None = None
        self.blocks: list[Block] = []
        self.done = False
        self._ends: list[int] = []  # of the first line, and of that of each block
        self._file = self._locked(target)
        with contextlib.suppress(
            ValueError, TypeError, KeyError, AttributeError
        ):  # no line of ours
            self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()
        if self.job is None:  # a job that did not come to its first line leaves none
            with contextlib.suppress(OSError):
                self.path.unlink()

    def begin_anew(self, job: dict[str, Any]) -> None:
        """Forget an earlier job, and begin as this one: what is in the output is no block of it."""
        self._file.truncate(0)
        self.blocks, self.done, self.job, self._ends = [], False, job, []
        self._add({"job": job})

    def cut(self, count: int) -> None:
        """Forget all blocks but the first ``count``, and what was torn behind them."""
        self.blocks, self.done = self.blocks[:count], False
        self._ends = self._ends[: count + 1]
        self._file.truncate(self._ends[-1])  # in one step: a kill finds the one or the other

    def add(self, block: Block) -> None:
        """A block is whole in the output."""
        self._add(asdict(block))
        self.blocks.append(block)

    def finish(self) -> None:
        """All of the job is in the output."""
        self._add({"done": True})
        self.done = True

    def sync(self) -> None:
        """Wait until what was written is on the disk."""
        os.fsync(self._file.fileno())

    def _read(self) -> None:
        self._file.seek(0)
        end = 0
        for line in self._file.read().split(b"\n")[:-1]:  # behind the last line break, a torn one
            entry, end = json.loads(line), end + len(line) + 1
            if self.job is None:
                self.job = dict(entry["job"])
            elif entry.get("done"):
                self.done = True
                return
            else:
                self.blocks.append(Block(**{**entry, "cost": tuple(entry.get("cost", ()))}))
            self._ends.append(end)

    def _add(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry).encode() + b"\n"
        self._file.write(line)  # at the end, as the file was opened
        self._file.flush()
        self._ends.append((self._ends[-1] if self._ends else 0) + len(line))

    def _locked(self, target: Path) -> IO[bytes]:
        """The file, opened for this process alone. Raises `click.UsageError` for a second one."""
        # The one that finishes first may take its file away: then another is made.
        while True:
            try:
                file = open(self.path, "a+b")  # noqa: SIM115 - held as long as the journal
            except OSError as error:
                raise click.UsageError(
                    f"{self.path} cannot be written ({error.strerror}). A job keeps its journal "
                    "beside its output: give -o a place that can be written."
                ) from None
            if fcntl is None:
                return file
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                raise click.UsageError(
                    f"Another job writes {visible(str(target))} at this moment. Wait for its end, "
                    "or give another -o."
                ) from None
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                    return file
            file.close()
