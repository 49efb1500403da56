"""Request bodies: limited in size and time, and decompressed if needed.

System One's client compresses with zstd on Python 3.14, without asking the server.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Protocol, cast

from starlette.requests import Request

from core_server.places import Share
from core_server.settings import Settings
from core_wires.errors import Dialect, WireError

if sys.version_info >= (3, 14):
    from compression.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
else:
    from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError

_IN_MEMORY = 1 << 18  # bytes of a body of lines; longer ones go to disk
_PIECE = 1 << 16  # bytes that are decoded at once: a small input can become large
_GZIP = b"\x1f"  # the first byte of a member


async def whole(dialect: Dialect, request: Request, settings: Settings, share: Share) -> bytearray:
    """Return a body, whose bytes are taken from the share. Raises `WireError`."""
    body = bytearray()

    def write(piece: bytes) -> None:
        share.take(len(piece))
        body.extend(piece)

    await _read(dialect, request, write, settings.max_body, settings.body_timeout)
    return body


async def spooled(
    dialect: Dialect, request: Request, settings: Settings, share: Share
) -> IO[bytes]:
    """Return a body of lines, on disk if it is long. Answers begin once it is complete.

    Many clients send the entire body before they read; answered earlier, both sides would wait.
    """
    spool = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - its answer closes it

    def write(piece: bytes) -> None:
        share.take(len(piece))
        spool.write(piece)

    try:
        await _read(dialect, request, write, settings.max_lines, settings.timeout)
    except BaseException:
        spool.close()
        raise
    spool.seek(0)
    return cast("IO[bytes]", spool)


async def _read(
    dialect: Dialect,
    request: Request,
    write: Callable[[bytes], object],
    most: int,
    timeout: float | None,
) -> None:
    decoder = _decoder(dialect, request.headers.get("content-encoding", ""))
    size = received = 0
    try:
        async with asyncio.timeout(timeout):
            async for chunk in request.stream():
                # A compressed body may be a little longer than its content, or hold nothing.
                received += len(chunk)
                if received > most + most // 64 + _PIECE:
                    raise _too_large(dialect, most)
                for piece in decoder.pieces(chunk):
                    size += len(piece)
                    if size > most:
                        raise _too_large(dialect, most)
                    write(piece)
                    await asyncio.sleep(0)  # one chunk may be decoded to a great many
            decoder.end()
    except TimeoutError:
        message = f"The request body did not arrive within {timeout:g} s."
        raise dialect.failed(408, "request_timeout", message) from None
    except (zlib.error, ZstdError, EOFError) as error:
        message = f"The request body does not match its Content-Encoding: {error}"
        raise dialect.failed(400, "invalid_encoding", message) from None


def _too_large(dialect: Dialect, most: int) -> WireError:
    return dialect.failed(413, "request_too_large", f"The request body exceeds {most:,} bytes.")


# --------------------------------------------------------------------------- encodings


class _Decoder(Protocol):
    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the content of these bytes, a piece at a time."""
        ...

    def end(self) -> None:
        """Raise EOFError for a truncated body."""
        ...


class _Plain:
    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        yield chunk

    def end(self) -> None:
        pass


class _Zlib:
    """Decoder of gzip members, which form one stream (RFC 1952, 2.2), or of one zlib stream."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)  # zlib's and gzip's headers
        self._first = b""

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        self._first = self._first or chunk[:1]
        for rest in _parts(chunk):
            full = True
            while rest or full:
                if self._stream.eof:
                    if not rest:
                        break
                    self._stream = self._next()
                piece = self._stream.decompress(rest, _PIECE)
                full = len(piece) == _PIECE  # the rest of it needs no more input
                rest = self._stream.unused_data or self._stream.unconsumed_tail
                yield piece

    def _next(self) -> zlib._Decompress:
        if self._first != _GZIP:
            raise EOFError("extra data after the end of the stream")
        return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    def end(self) -> None:
        if not self._stream.eof:
            raise EOFError("the body is truncated")


class _Zstd:
    """Decoder of zstd frames, also skippable ones, which form one stream (RFC 8878, 3.1)."""

    def __init__(self) -> None:
        self._stream = _zstd_stream()

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        for rest in _parts(chunk):
            while rest or not (self._stream.eof or self._stream.needs_input):
                if self._stream.eof:
                    self._stream = _zstd_stream()
                yield self._stream.decompress(rest, _PIECE)
                rest = self._stream.unused_data if self._stream.eof else b""

    def end(self) -> None:
        if not self._stream.eof:
            raise EOFError("the body is truncated")


def _zstd_stream() -> ZstdDecompressor:
    """Return a decoder of one frame, whose window is at most 8 MB (RFC 8878, 3.1.1.1.2)."""
    return ZstdDecompressor(options={DecompressionParameter.window_log_max: 23})


def _parts(chunk: bytes) -> Iterator[bytes]:
    """Yield the parts to decode at once: each member of gzip copies the input that follows it."""
    for start in range(0, len(chunk), _PIECE):
        yield chunk[start : start + _PIECE]


_DECODERS: dict[str, Callable[[], _Decoder]] = {
    "": _Plain,
    "identity": _Plain,
    "gzip": _Zlib,
    "deflate": _Zlib,
    "zstd": _Zstd,
}


def _decoder(dialect: Dialect, name: str) -> _Decoder:
    make = _DECODERS.get(name.strip().lower())
    if make is None:
        raise _unknown(dialect, name)
    return make()


def _unknown(dialect: Dialect, name: str) -> WireError:
    known = ", ".join(filter(None, _DECODERS))
    message = f"Unsupported Content-Encoding {name!r:.60}. Supported: {known}."
    return dialect.failed(415, "unsupported_encoding", message)
