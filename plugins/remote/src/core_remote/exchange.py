"""One request and what comes back: lines that wait here for the thread, or the task, that reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

from core.clock import Check

_SHORTEST, _LONGEST = 0.0005, 0.02  # seconds between two looks at cancel and timeout
_SHARE = 10  # of the time that was waited: what takes long is looked at less often


class _End:
    """Stands behind the last line."""


END = _End()


class Exchange:
    """The lines of one answer. The connection's loop puts them in, one reader takes them out.

    It takes no lock that is Python's: a reader may be interrupted anywhere.
    """

    def __init__(self) -> None:
        self._lines: SimpleQueue[bytes | Exception | _End] = SimpleQueue()
        self._told: Callable[[], object] | None = None
        self.task: Future[None] | None = None
        self.watch: Callable[[], None] | None = None
        """Is called with each line that comes: of a request whose reader may never look."""

    def put(self, item: bytes | Exception | _End) -> None:
        """A line has come, or what the answer ended with."""
        if self.watch is not None:
            self.watch()
        self._lines.put(item)
        told = self._told
        if told is not None:
            with suppress(RuntimeError):  # the reader's loop has ended
                told()

    def abort(self) -> None:
        """Leave: the connection is closed, by which the server knows. May be called twice."""
        if self.task is not None:
            with suppress(RuntimeError):  # the loop has ended
                self.task.cancel()

    def next(self, check: Check) -> bytes | None:
        """The next line; None behind the last. Raises what ended the answer, or ``check`` does."""
        start = time.monotonic()
        while True:
            check()
            with suppress(Empty):
                return self._taken(self._lines.get(timeout=_pause(time.monotonic() - start)))

    async def anext(self, check: Check) -> bytes | None:
        """The same for a task, which waits in its own event loop."""
        loop, woken, start = asyncio.get_running_loop(), asyncio.Event(), time.monotonic()
        self._told = partial(loop.call_soon_threadsafe, woken.set)
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
            self._told = None

    def _taken(self, item: bytes | Exception | _End) -> bytes | None:
        if isinstance(item, bytes):
            return item
        self._lines.put(item)  # it is the answer to every later question as well
        if isinstance(item, Exception):
            raise item
        return None


def _pause(waited: float) -> float:
    return min(_LONGEST, max(_SHORTEST, waited / _SHARE))


def forget(task: Future[None]) -> None:
    """Leave a task to itself: whatever it raises is nobody's business."""
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
