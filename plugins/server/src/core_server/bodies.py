"""Bodies of requests: within their limits of size and time, and decoded where they are compressed.

The client of System One compresses with zstd on Python 3.14, without asking the server.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Protocol, cast

from starlette.requests import Request

from core.wires.errors import Dialect, WireError
from core_server.allowance import Share
from core_server.settings import Settings

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError
else:
    from backports.zstd import ZstdDecompressor, ZstdError

_IN_MEMORY = 1 << 18  # bytes of a body of lines; longer ones go to disk
_PIECE = 1 << 16  # bytes that are decoded at once: little can become much
_GZIP = b"\x1f"  # the first byte of a member


async def whole(dialect: Dialect, request: Request, settings: Settings, share: Share) -> bytearray:
    """A body, each byte of it taken from the share. Raises `WireError`."""
    body = bytearray()

    def write(piece: bytes) -> None:
        share.take(len(piece))
        body.extend(piece)

    await _read(dialect, request, write, settings.max_body, settings.body_timeout)
    return body


async def spooled(
    dialect: Dialect, request: Request, settings: Settings, share: Share
) -> IO[bytes]:
    """A body of lines, on disk where it is long: answers begin when all of it is there.

    Many clients send a whole body before they read; answered earlier, both sides would wait.
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
        told = f"The body was not there within {timeout:g} s."
        raise dialect.failed(408, "request_timeout", told) from None
    except (zlib.error, ZstdError, EOFError) as error:
        told = f"The body is not what its Content-Encoding says: {error}"
        raise dialect.failed(400, "invalid_encoding", told) from None


def _too_large(dialect: Dialect, most: int) -> WireError:
    return dialect.failed(413, "request_too_large", f"A body has at most {most:,} bytes.")


# --------------------------------------------------------------------------- encodings


class _Decoder(Protocol):
    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """What these bytes add, a piece at a time."""
        ...

    def end(self) -> None:
        """Raises EOFError for a body that was cut."""
        ...


class _Plain:
    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        yield chunk

    def end(self) -> None:
        pass


class _Zlib:
    """Members of gzip, which together are one stream (RFC 1952, 2.2), or one stream of zlib's."""

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
                full = len(piece) == _PIECE  # what is left of it needs no more input
                rest = self._stream.unused_data or self._stream.unconsumed_tail
                yield piece

    def _next(self) -> zlib._Decompress:
        if self._first != _GZIP:
            raise EOFError("something follows its end")
        return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    def end(self) -> None:
        if not self._stream.eof:
            raise EOFError("it was cut")


class _Zstd:
    """Frames of zstd, skippable ones among them, which together are one stream (RFC 8878, 3.1)."""

    def __init__(self) -> None:
        self._stream = ZstdDecompressor()

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        for rest in _parts(chunk):
            while rest or not (self._stream.eof or self._stream.needs_input):
                if self._stream.eof:
                    self._stream = ZstdDecompressor()
                yield self._stream.decompress(rest, _PIECE)
                rest = self._stream.unused_data if self._stream.eof else b""

    def end(self) -> None:
        if not self._stream.eof:
            raise EOFError("it was cut")


def _parts(chunk: bytes) -> Iterator[bytes]:
    """Cut off what is decoded at once: what is left behind a member is copied for each."""
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
    told = f"A body encoded with {name!r:.60} cannot be read here: {known}."
    return dialect.failed(415, "unsupported_encoding", told)
