"""The first bytes of an input: looked at, and still there to be read."""

from __future__ import annotations

import io
import os
import stat
from dataclasses import dataclass
from typing import IO, Any

_BYTES, _LINES = 2**16, 21


@dataclass(frozen=True, slots=True)
class Head:
    """The first lines of an input; ``whole`` where there is nothing behind them."""

    data: bytes
    whole: bool = False


def looked_at(stream: IO[bytes]) -> tuple[Head, IO[bytes]]:
    """The head of a stream, and a stream that begins with it.

    A pipe gives its bytes as they come, and what an input is must not depend on that: so this waits
    for as many lines as decide it, which are fewer than the first block of rows has.
    """
    start = stream.tell() if is_file(stream) else None
    data, line = b"", b"\n"
    for _ in range(_LINES):
        line = stream.readline(_BYTES - len(data))
        data += line
        if not line or len(data) == _BYTES:
            break
    head = Head(data, whole=not line)
    if start is None:
        return head, io.BufferedReader(_Again(data, stream), _BYTES)
    stream.seek(start)
    return head, stream


def is_file(stream: IO[bytes]) -> bool:
    """Whether it is a file of a disk, in which one can go back."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


class _Again(io.RawIOBase):
    """A stream with bytes before it that were taken from it."""

    def __init__(self, data: bytes, stream: Any) -> None:
        self._data, self._stream = data, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = len(buffer)
        # What a pipe holds now: whoever types waits for no more than the line.
        part = self._data[:size] or self._stream.read1(size)
        self._data = self._data[size:]
        buffer[: len(part)] = part
        return len(part)
