"""A request's body, read and worked on by threads, within the server's memory budget."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TypeVar

import msgspec

from core_server.places import Share
from core_server.threads import Threads
from core_wires.errors import Dialect
from core_wires.values import MAX_VALUES

T = TypeVar("T")
_QUICK = 1 << 13  # bytes of a body that the event loop parses itself, in milliseconds
_PARSED = 3  # bytes that the parsed values usually take for each byte of a body
_TEXTS = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


class RequestBody:
    """The body of one request (``lines`` if it is lines), with its threads and share of memory."""

    def __init__(
        self, body: bytes | bytearray | IO[bytes], dialect: Dialect, threads: Threads, share: Share
    ) -> None:
        self._body, self._dialect, self._threads = body, dialect, threads
        self.share = share
        self.size = len(body) if isinstance(body, bytes | bytearray) else 0

    @property
    def lines(self) -> IO[bytes]:
        """The body, if it is lines."""
        assert not isinstance(self._body, bytes | bytearray)
        return self._body

    async def read(self, reader: Callable[[object], T]) -> T:
        """Return the result of a reader on the body's JSON. Raises `WireError`."""
        return await self.brief(lambda: reader(self._parsed()))

    async def brief(self, function: Callable[[], T]) -> T:
        """Return the result of a function that takes long only for a large body."""
        return function() if self.size <= _QUICK else await self.run(function)

    async def run(self, function: Callable[[], T], size: int = 0) -> T:
        """Return the result of a function, run on a thread; ``size``: bytes besides the body."""
        return await self._threads.run(self.size + size, function)

    @contextmanager
    def part(self) -> Iterator[Share]:
        """Yield a share for a part of the work, given back after it."""
        share = self.share.another()
        try:
            yield share
        finally:
            share.close()

    def _parsed(self) -> object:
        body = self._body
        assert isinstance(body, bytes | bytearray)
        self.share.take(self.size * _PARSED)
        if _values(body) > MAX_VALUES:
            raise self._dialect.invalid((), f"The body has over {MAX_VALUES} values.", "too_long")
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise self._dialect.invalid(
                (), f"The body is not JSON: {error}", "json_invalid"
            ) from None
        finally:
            self._body = b""


def _values(body: bytes | bytearray) -> int:
    """Return a lower bound of a body's values: three bytes may take a hundred when parsed."""
    if body.count(b",") <= MAX_VALUES:
        return 0
    return _TEXTS.sub(b"", body).count(b",")
