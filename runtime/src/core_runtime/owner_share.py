"""One owner thread for several models that share weights: it ends with the last of them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from core.clock import Check, never_stop
from core.errors import ModelClosedError
from core_runtime.owner import Owner, OwnerThread
from core_runtime.threads import awaited

T = TypeVar("T")


class OwnerShare(Owner):
    """One model's hold on a ``thread``. Closed, it takes no jobs; those of `another` go on."""

    def __init__(self, owner: OwnerThread, holders: _Holders | None = None) -> None:
        self.thread, self._closed = owner, False
        self._holders = holders or _Holders()
        self._holders.count += 1

    def another(self) -> OwnerShare:
        """Return the hold of one more model. Raises `ModelClosedError` once this one is closed."""
        with self._holders.lock:
            if self._closed:
                raise ModelClosedError
            return OwnerShare(self.thread, self._holders)

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """See `Owner`."""
        self.thread.check_fork()
        if self.thread.is_here:  # it runs at once, and meanwhile the others need the lock
            self._check()
            return self.thread.submit(job)
        with self._holders.lock:
            self._check()
            return self.thread.submit(job)

    def post(self, job: Callable[[], None]) -> bool:
        """See `Owner`."""
        self.thread.check_fork()
        with self._holders.lock:
            return not self._closed and self.thread.post(job)

    def receive(self, items: queue.SimpleQueue[T], look: Check = never_stop) -> T:
        """See `OwnerThread`."""
        return self.thread.receive(items, look)

    def check_fork(self) -> None:
        """See `Owner`."""
        self.thread.check_fork()

    def close(self, last: Callable[[], None]) -> None:
        """Run ``last`` behind this model's jobs; the last hold ends the thread. Twice is fine."""
        if self.thread.is_forked:
            return

        # Queued while the lock is held: whoever ends the thread does so behind it.
        done: Future[None] | None = None
        with self._holders.lock:
            if not self._leave():
                return
            if self._holders.count:
                done = self.thread.submit(last)
        if done is None:
            self.thread.close(last)
        else:
            awaited(done, never_stop)

    def stop(self) -> None:
        """See `Owner`."""
        if self.thread.is_forked:
            return
        with self._holders.lock:
            if self._leave() and not self._holders.count:
                self.thread.stop()

    def _leave(self) -> bool:
        """Give up the hold; False where that was done before."""
        if self._closed:
            return False
        self._closed = True
        self._holders.count -= 1
        return True

    def _check(self) -> None:
        if self._closed:
            raise ModelClosedError


class _Holders:
    """How many models hold a thread. The lock is reentrant: the collector may run `stop` in it."""

    def __init__(self) -> None:
        self.lock, self.count = threading.RLock(), 0
