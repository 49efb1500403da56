"""A stream of text in another encoding than UTF-8, read as UTF-8 (``--encoding``)."""

from __future__ import annotations

import codecs
import io
from typing import IO, Any

import click

_CHUNK = 2**16


def check(name: str) -> str:
    """Return the name of an encoding of text. Raises `click.UsageError` for an unknown one."""
    try:
        info = codecs.lookup(name)
        if not getattr(info, "_is_text_encoding", True):
            raise LookupError
    except LookupError:
        raise click.UsageError(
            f"Unknown encoding {name!r}. Usual ones are utf-8, utf-16, cp1252 (Excel on Windows in "
            "Western Europe), latin-1 and shift_jis."
        ) from None
    return info.name


def as_utf8(stream: IO[bytes], encoding: str) -> IO[bytes]:
    """Return a stream of the same text in UTF-8; bytes without a meaning remain as they are."""
    return io.BufferedReader(_Utf8(stream, encoding), _CHUNK)


class _Utf8(io.RawIOBase):
    """A stream that decodes another, and encodes it as UTF-8."""

    def __init__(self, stream: Any, encoding: str) -> None:
        self._stream, self._encoding = stream, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
        self._data, self._ended = b"", False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not (self._data or self._ended):
            chunk = self._stream.read1(_CHUNK)
            self._ended = not chunk
            self._data = self._decoded(chunk).encode("utf-8", "surrogateescape")
        part, self._data = self._data[: len(buffer)], self._data[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)

    def _decoded(self, chunk: bytes) -> str:
        try:
            return self._decoder.decode(chunk, self._ended)
        except UnicodeDecodeError as error:
            raise click.UsageError(
                f"The input is not valid {self._encoding}: {error.reason}. Check --encoding."
            ) from None
