"""The first bytes of an input: looked at, and still there to be read."""

from __future__ import annotations

import io
import os
import select
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

_BYTES, _LINES = 2**16, 21
_GRACE = 0.05  # seconds for a writer that is on its way
Told = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class Head:
    """The first lines of an input; ``whole`` where there is nothing behind them."""

    data: bytes
    whole: bool = False


def looked_at(stream: IO[bytes], told: Told = lambda line: False) -> tuple[Head, IO[bytes]]:
    """The head of a stream, and a stream that begins with it.

    A pipe gives its bytes as they come, and what an input is must not depend on that: so this waits
    for as many lines as decide it: the first, where it is ``told`` by that, or 21.
    """
    start = stream.tell() if is_file(stream) else None
    pipe = io.BufferedReader(_Pipe(stream), _BYTES)
    source = stream if start is not None else pipe
    data, line = b"", b"\n"
    for number in range(_LINES):
        line = source.readline(_BYTES - len(data))
        data += line
        if not line or len(data) == _BYTES or (number == 0 and told(data)):
            break
    head = Head(data, whole=not line)
    if start is None:
        return head, io.BufferedReader(_Again(data, pipe), _BYTES)
    stream.seek(start)
    return head, stream


def is_file(stream: IO[bytes]) -> bool:
    """Whether it is a file of a disk, in which one can go back."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def more_waits(stream: IO[bytes]) -> bool:
    """Whether something can be read of a stream that `looked_at` gave, without waiting long.

    Where nobody can know, it does.
    """
    raw = getattr(stream, "raw", None)
    return not isinstance(raw, _Again) or stream.tell() < raw.tell() or raw.more_waits()


class _Pipe(io.RawIOBase):
    """A stream that is read as its bytes come, and counts them."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._count = stream, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # What a pipe holds now: whoever types waits for no more than the line.
        part = self._read(len(buffer))
        buffer[: len(part)] = part
        self._count += len(part)
        return len(part)

    def tell(self) -> int:
        return self._count

    def more_waits(self) -> bool:
        """Whether its system has bytes for it, or says that there are no more."""
        try:
            return bool(select.select([self._stream], [], [], _GRACE)[0])
        except (OSError, ValueError):  # no descriptor, or Windows
            return True

    def _read(self, size: int) -> bytes:
        try:
            descriptor = self._stream.fileno()
        except (OSError, ValueError):
            return bytes(self._stream.read1(size))
        return os.read(descriptor, size)


class _Again(_Pipe):
    """A stream with bytes before it that were taken from it."""

    def __init__(self, data: bytes, stream: Any) -> None:
        super().__init__(stream)
        self._data = data

    def more_waits(self) -> bool:
        """Whether there are bytes here, or in what it reads from."""
        behind = self._stream.raw
        return bool(self._data or self._stream.tell() < behind.tell() or behind.more_waits())

    def _read(self, size: int) -> bytes:
        part = self._data[:size] or self._stream.read1(size)
        self._data = self._data[size:]
        return part
