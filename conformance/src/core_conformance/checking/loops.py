"""Cancel tokens that watch an event loop, or cancel the task that waits in it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from core_conformance.checking.calls import CancelAfter

FEW_LOOKS = 12
"""The number of looks from which on a cancel can be seen to be heeded."""
_TURNS, _PATIENCE = 32, 5.0  # of an event loop; seconds


class WatchesItsLoop(CancelAfter):
    """A cancel that is never set, whose looks see whether the event loop turns meanwhile.

    In another thread, a look waits for a turn; in the loop itself, where a client asks now and
    then, the loop has to have turned some looks later.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stood = self._asked = False
        self._turned = threading.Event()

    def watch(self) -> None:
        """Take the running event loop as the one to watch; called in it."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    def is_set(self) -> bool:
        """See `core.CancelToken`."""
        super().is_set()
        if not self._asked:
            self._asked = True
            self._loop.call_soon_threadsafe(self._turned.set)
        if threading.get_ident() != self._thread:
            self.stood = self.stood or not self._turned.wait(_PATIENCE)
        elif self.seen >= FEW_LOOKS:
            self.stood = self.stood or not self._turned.is_set()
        return False


class HoldsItsRequest(CancelAfter):
    """A cancel that is never set, and whose looks wait, from `hold` on, until ``released`` is set.

    That is when the event loop has told the request what became of it: none is over before,
    however fast it is and however busy the machine. A look in the loop itself does not wait;
    ``in_loop`` tells that there was one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.in_loop = False
        self.released = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def hold(self) -> None:
        """Let looks wait, and the loop turn; to be called in the loop."""
        self._thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self._turn(_TURNS)

    def is_set(self) -> bool:
        """See `core.CancelToken`."""
        super().is_set()
        here = threading.get_ident() == self._thread
        self.in_loop = self.in_loop or here
        if self._loop is not None and not here:
            self.released.wait(_PATIENCE)
        return False

    def _turn(self, left: int) -> None:
        """Let the loop turn: a task waits for a future that waits for others, and so on."""
        if left and self._loop is not None:
            self._loop.call_soon(self._turn, left - 1)
        else:
            self.released.set()


class CancelsItsTask(HoldsItsRequest):
    """At one of its looks, the task is cancelled that asked."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at
        self._task: asyncio.Future[Any] | None = None

    def watch(self, task: asyncio.Future[Any]) -> None:
        """Take the task to cancel; called in its event loop."""
        self._task, self._thread = task, threading.get_ident()

    def is_set(self) -> bool:
        """See `core.CancelToken`."""
        task = self._task
        if task is not None and self.seen + 1 >= self._at:
            self._task = None
            task.get_loop().call_soon_threadsafe(self._cancel, task)
            if threading.get_ident() != self._thread:
                self.released.wait(_PATIENCE)
        return super().is_set()

    def _cancel(self, task: asyncio.Future[Any]) -> None:
        task.cancel()
        self.hold()


async def cancelled_in(witness: CancelsItsTask, work: Coroutine[Any, Any, Any]) -> None:
    """Await work in a task that ``witness`` cancels while its request runs."""
    task = asyncio.ensure_future(work)
    witness.watch(task)
    await asyncio.gather(task, return_exceptions=True)
    witness.released.set()  # the loop ends here, perhaps before it has turned so often
