"""Reading an answer to its end, on a thread or in an event loop, and stopping it early."""

from __future__ import annotations

import time
from typing import Protocol

from core.errors import CoreError
from core.kit.base import STOPPED, Check
from core_remote.exchange import Exchange

_PATIENCE = 2.0  # seconds


class TooLateError(Exception):
    """The error of waiting too long for the results of a stopped call."""


class LineReader(Protocol):
    """A consumer of the lines of an answer."""

    def feed(self, line: bytes | None) -> bool:
        """Take a line, or None after the last. Returns True once the answer is complete."""
        ...

    def stop(self, error: CoreError) -> bool:
        """Stop the call. Returns True if its rest is worth waiting for."""
        ...


def read(exchange: Exchange, reader: LineReader, check: Check) -> None:
    """Feed the reader until the answer is complete, or the call was stopped."""
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


async def read_async(exchange: Exchange, reader: LineReader, check: Check) -> None:
    """Do the same in an event loop. A cancelled task closes the connection."""
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
    """Return a check that raises `TooLateError` after a few seconds."""
    end = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() >= end:
            raise TooLateError

    return check
