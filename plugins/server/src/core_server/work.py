"""A request's body, and the work on it: beside the event loop, within the server's allowance."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TypeVar

import msgspec

from core.wires.errors import Dialect
from core.wires.values import MAX_VALUES
from core_server.allowance import Share
from core_server.threads import Threads

T = TypeVar("T")
_QUICK = 1 << 13  # bytes of a body that the event loop reads itself, in milliseconds
_PARSED = 3  # bytes that a body's values take beside each byte of it, as a rule
_TEXTS = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


class Work:
    """The body of one request, ``lines`` where it is lines, and what is taken for it."""

    def __init__(
        self, body: bytes | bytearray | IO[bytes], dialect: Dialect, threads: Threads, share: Share
    ) -> None:
        self._body, self._dialect, self._threads = body, dialect, threads
        self.share = share
        self.size = len(body) if isinstance(body, bytes | bytearray) else 0

    @property
    def lines(self) -> IO[bytes]:
        """A body of lines."""
        assert not isinstance(self._body, bytes | bytearray)
        return self._body

    async def read(self, reader: Callable[[object], T]) -> T:
        """Return what a reader makes of the body's JSON. Raises `WireError`."""
        if self.size <= _QUICK:
            return reader(self._parsed())
        return await self.run(lambda: reader(self._parsed()))

    async def run(self, function: Callable[[], T], size: int = 0) -> T:
        """Return what a function returns, which a thread runs; ``size`` bytes beside the body's."""
        return await self._threads.run(self.size + size, function)

    @contextmanager
    def part(self) -> Iterator[Share]:
        """A share for a part of the work, given back after it."""
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
            raise self._dialect.invalid((), f"More than {MAX_VALUES} values.", "too_long")
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise self._dialect.invalid(
                (), f"The body is not JSON: {error}", "json_invalid"
            ) from None
        finally:
            self._body = b""


def _values(body: bytes | bytearray) -> int:
    """Return at least how many values a body has: three bytes of it may take a hundred as one."""
    if body.count(b",") <= MAX_VALUES:
        return 0
    return _TEXTS.sub(b"", body).count(b",")
