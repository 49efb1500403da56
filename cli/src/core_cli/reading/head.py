"""Peeks at the first bytes of an input, which can still be read."""

from __future__ import annotations

import io
import os
import select
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

_BYTES, _LINES = 2**16, 21
_GRACE = 0.05  # seconds to wait for a writer
Told = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class Head:
    """The first lines of an input; ``whole`` if they are all of it."""

    data: bytes
    whole: bool = False


def looked_at(stream: IO[bytes], told: Told = lambda line: False) -> tuple[Head, IO[bytes]]:
    """Return the head of a stream, and a stream that begins with it.

    The format must not depend on how a pipe delivers its bytes, so this waits for 21 lines, or for
    the first one if ``told`` returns that it decides.
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
    """Return whether the stream is a regular, seekable file."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def more_waits(stream: IO[bytes]) -> bool:
    """Return whether a stream returned by `looked_at` can be read without a long wait.

    True if that is unknown.
    """
    raw = getattr(stream, "raw", None)
    return not isinstance(raw, _Again) or stream.tell() < raw.tell() or raw.more_waits()


class _Pipe(io.RawIOBase):
    """A stream that returns available bytes at once, and counts them."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._count = stream, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # Only what a pipe holds now, so that typed lines are returned at once.
        part = self._read(len(buffer))
        buffer[: len(part)] = part
        self._count += len(part)
        return len(part)

    def tell(self) -> int:
        return self._count

    def more_waits(self) -> bool:
        """Return whether bytes are available, or the end is reached."""
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
    """A stream with the bytes prepended that were read from it."""

    def __init__(self, data: bytes, stream: Any) -> None:
        super().__init__(stream)
        self._data = data

    def more_waits(self) -> bool:
        """Return whether bytes are buffered here or available in the stream."""
        behind = self._stream.raw
        return bool(self._data or self._stream.tell() < behind.tell() or behind.more_waits())

    def _read(self, size: int) -> bytes:
        part = self._data[:size] or self._stream.read1(size)
        self._data = self._data[size:]
        return part
