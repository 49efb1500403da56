"""A request and its answer: lines that wait here for the thread or task that reads them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

from core.kit.base import Check

_SHORTEST, _LONGEST = 0.0005, 0.02  # seconds between two looks at cancel and timeout
_MOST_WAITING = 64 << 20  # bytes of lines that wait for their reader, before one more
_SHARE = 10  # of the time that was waited: what takes long is looked at less often


class _End:
    """The marker after the last line."""


END = _End()


class Exchange:
    """The lines of one answer. The connection's loop puts them in, one reader takes them out.

    It uses no lock of Python's: a reader may be interrupted anywhere.
    """

    def __init__(self) -> None:
        self._lines: SimpleQueue[bytes | Exception | _End] = SimpleQueue()
        self._put = self._read = 0  # bytes, each counted by one thread alone
        self._notify: Callable[[], object] | None = None
        self.task: Future[None] | None = None
        self.watch: Callable[[], None] | None = None
        """Called with each line that comes, even if nothing reads the request."""

    def put(self, item: bytes | Exception | _End) -> None:
        """Add a line, or the end of the answer."""
        if self.watch is not None:
            self.watch()
        if isinstance(item, bytes):
            self._put += len(item)
        self._lines.put(item)
        notify = self._notify
        if notify is not None:
            with suppress(RuntimeError):  # the reader's loop has ended
                notify()

    async def room(self) -> None:
        """Wait until the reader has taken most lines; meanwhile nothing is read from the server."""
        while self._put - self._read > _MOST_WAITING:
            await asyncio.sleep(_LONGEST)

    def abort(self) -> None:
        """Close the connection, which ends the request on the server. May be called twice."""
        if self.task is not None:
            with suppress(RuntimeError):  # the loop has ended
                self.task.cancel()

    def next(self, check: Check) -> bytes | None:
        """Return the next line; None after the last.

        Raises the error that ended the answer, or one of ``check``.
        """
        start = time.monotonic()
        while True:
            check()
            with suppress(Empty):
                return self._taken(self._lines.get(timeout=_pause(time.monotonic() - start)))

    async def anext(self, check: Check) -> bytes | None:
        """Return the same for a task, which waits in its event loop."""
        loop, woken, start = asyncio.get_running_loop(), asyncio.Event(), time.monotonic()
        self._notify = partial(loop.call_soon_threadsafe, woken.set)
        try:
            while True:
                check()
                woken.clear()
                with suppress(Empty):
                    return self._taken(self._lines.get_nowait())
                with suppress(TimeoutError):
                    async with asyncio.timeout(_pause(time.monotonic() - start)):
                        await woken.wait()
        finally:
            self._notify = None

    def _taken(self, item: bytes | Exception | _End) -> bytes | None:
        if isinstance(item, bytes):
            self._read += len(item)
            return item
        self._lines.put(item)  # it is the answer to every later question as well
        if isinstance(item, Exception):
            raise item
        return None


def _pause(waited: float) -> float:
    return min(_LONGEST, max(_SHORTEST, waited / _SHARE))


def forget(task: Future[None]) -> None:
    """Let a task end by itself: its exception is ignored."""
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
