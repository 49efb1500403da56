"""The lines of a table; those after a broken record are read again."""

from __future__ import annotations

from collections import deque
from typing import IO

from core_cli.reading import lines
from core_cli.reading.row import InputError

_MOST_LINES = 2**20
"""Lines that one record may have; what is kept of each is more than its bytes."""
_FREE = 4


class TableLines:
    """The lines of a stream as text, counted; bytes that are not UTF-8 become surrogates.

    An unclosed quote takes everything after it into its cell. `return_rest` gives the lines
    back: the record ends with its first line, and is broken.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self.number = 0
        self._lines = lines.lines(stream)
        self._record: list[bytes] = []
        self._again: deque[bytes] = deque()
        # Bytes that may be read again, so that no input takes more than a few times its length.
        self._credit = _FREE * lines.MAX_LINE_BYTES
        self._size = 0

    def __iter__(self) -> TableLines:
        return self

    def __next__(self) -> str:
        if self._again:
            line = self._again.popleft()
        else:
            line = next(self._lines)
            self._credit += len(line)
        self.number += 1
        self._record.append(line)
        self._size += len(line)
        if len(line) > lines.MAX_LINE_BYTES:
            raise InputError(f"it is longer than {lines.MAX_LINE_BYTES} bytes")
        if self._size > lines.MAX_LINE_BYTES or len(self._record) > _MOST_LINES:
            raise InputError("a double quote opens a cell and is not closed")
        return line.decode(errors="surrogateescape")

    @property
    def size(self) -> int:
        """The bytes of the record."""
        return self._size

    def begin(self) -> None:
        """Begin a record with the next line."""
        self._record, self._size = [], 0

    def return_rest(self) -> None:
        """End the record with its first line, so that the others are read again."""
        rest = self._record[1:]
        size = sum(map(len, rest))
        if size > self._credit:
            return
        self._credit -= size
        self._again.extendleft(reversed(rest))
        self.number -= len(rest)
