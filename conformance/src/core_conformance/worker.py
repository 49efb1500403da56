"""One thread that does the work, so that the caller can stop waiting for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_SLICE = 0.5  # seconds: a signal that comes just before a wait begins is heard when it ends


class StillRunning(BaseException):
    """The work did not end within its limit, and still runs. No ``except Exception`` takes it."""


class Worker:
    """Does one thing at a time, always in the same thread. After `StillRunning` it is of no use.

    The thread is a daemon: what hangs in it does not keep the interpreter from ending. A hang
    that holds the interpreter's lock is not noticed; only a process of its own helps there.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        thread = threading.Thread(target=self._work, name="conformance", daemon=True)
        thread.start()

    def run(self, job: Callable[[], T], seconds: float) -> T:
        """What ``job`` returns or raises. Raises `StillRunning` after so many seconds."""
        future: Future[T] = Future()
        self._jobs.put((future, job))
        end = time.monotonic() + seconds
        while not wait((future,), max(0.0, min(_SLICE, end - time.monotonic()))).done:
            if time.monotonic() >= end:
                raise StillRunning
        return future.result()

    def stop(self) -> None:
        """Let the thread end after what it does now."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, call = job
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - handed to the caller, whatever it is
                future.set_exception(error)
            del future, call, job  # a result or an error may hold a whole model
