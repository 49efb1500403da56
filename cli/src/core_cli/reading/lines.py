"""Lines of bytes, without a byte order mark and with a maximum length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from core_cli.reading.row import InputError, Row

MAX_LINE_BYTES = 16 * 2**20
"""More than a context of a million tokens holds; a longer line is refused, unread."""
MAX_SKIPPED_BYTES = 2**30
"""The rest of such a line is passed over; where it goes on beyond this, the input is."""
_CHUNK, _SHOWN = 2**20, 1000


def lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield lines with their ends; a line that is too long is cut just above the limit."""
    line = stream.readline(MAX_LINE_BYTES + 1)
    mark = b"\xef\xbb\xbf"
    while line:
        cut = len(line) > MAX_LINE_BYTES and not line.endswith(b"\n")
        # A cut line stays longer than the limit, by which it is recognised.
        yield line if cut else line.removeprefix(mark)
        if cut and not _skip_rest(stream):
            return
        line, mark = stream.readline(MAX_LINE_BYTES + 1), b""


def _skip_rest(stream: IO[bytes]) -> bool:
    """Skip the rest of a line; False if it does not end, as in /dev/zero."""
    for _ in range(MAX_SKIPPED_BYTES // _CHUNK):
        rest = stream.readline(_CHUNK)
        if not rest or rest.endswith(b"\n"):
            return True
    return False


def too_long(number: int, line: bytes, name: str) -> Row | None:
    """Return the error row of a line that is too long; None for another."""
    if len(line) <= MAX_LINE_BYTES:
        return None
    source = "stdin" if name == "-" else name
    problem = InputError(
        f"line {number} of {source} is longer than {MAX_LINE_BYTES} bytes. Split it into lines."
    )
    return Row(number, line[:_SHOWN].decode(errors="replace"), error=problem)


def decoded(number: int, line: bytes) -> str | Row:
    """Return the text of a line without its end, or an error row if it is not UTF-8."""
    line = line.rstrip(b"\r\n")
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        problem = InputError(f"line {number} is not valid UTF-8 (byte {error.start + 1}).")
        return Row(number, line.decode(errors="replace"), error=problem)
