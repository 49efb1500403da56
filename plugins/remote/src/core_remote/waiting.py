"""Reading an answer to its end, from a thread or in an event loop, and stopping it on the way."""

from __future__ import annotations

import time
from typing import Protocol

from core.clock import STOPPED, Check
from core.errors import CoreError
from core_remote.exchange import Exchange

_PATIENCE = 2.0  # seconds


class TooLateError(Exception):
    """The time to wait for what a stopped call has come to is over."""


class Reader(Protocol):
    """What makes something of the lines of an answer."""

    def feed(self, line: bytes | None) -> bool:
        """Take a line, or None behind the last. True once the answer is whole."""
        ...

    def stop(self, error: CoreError) -> bool:
        """The call was stopped. True where its rest is still worth waiting for."""
        ...


def read(exchange: Exchange, reader: Reader, check: Check) -> None:
    """Feed the reader until the answer is whole, or the call was stopped."""
    try:
        try:
            while not reader.feed(exchange.next(check)):
                pass
        except STOPPED as error:
            if not reader.stop(error):
                raise
            late = patience()
            while not reader.feed(exchange.next(late)):
                pass
    except (TooLateError, *STOPPED):
        exchange.abort()  # what has not come by now, the reader fills in
    except BaseException:
        exchange.abort()
        raise


async def read_async(exchange: Exchange, reader: Reader, check: Check) -> None:
    """The same in an event loop. A task that is cancelled leaves the server."""
    try:
        try:
            while not reader.feed(await exchange.anext(check)):
                pass
        except STOPPED as error:
            if not reader.stop(error):
                raise
            late = patience()
            while not reader.feed(await exchange.anext(late)):
                pass
    except (TooLateError, *STOPPED):
        exchange.abort()
    except BaseException:
        exchange.abort()
        raise


def patience(seconds: float = _PATIENCE) -> Check:
    """A check that raises `TooLateError` when so many seconds are over."""
    end = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() >= end:
            raise TooLateError

    return check
