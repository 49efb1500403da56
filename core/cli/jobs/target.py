"""The file that a job writes: block by block at its end, and whole lines only."""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path
from types import TracebackType
from typing import Self


class Target:
    """A file that grows by blocks. ``end`` is where its last whole block ends."""

    def __init__(self, path: Path) -> None:
        self.end = 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def block(self, end: int, crc: int) -> bytes | None:
        """The next block, which ends at ``end``; None where the file holds another one there."""
        data = b""
        while len(data) < end - self.end:
            part = os.pread(self._file, end - self.end - len(data), self.end + len(data))
            if not part:
                return None
            data += part
        if zlib.crc32(data) != crc:
            return None
        self.end = end
        return data

    def begin(self) -> None:
        """Cut off what stands behind the last whole block."""
        os.ftruncate(self._file, self.end)

    def add(self, data: bytes) -> int:
        """Write a block, and give its CRC-32. Where that fails, nothing of it stays."""
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._file, data[written:], self.end + written)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self.end)
            raise
        self.end += len(data)
        return zlib.crc32(data)

    def sync(self) -> None:
        """Wait until what was written is on the disk."""
        os.fsync(self._file)
