"""Work on other threads that goes on without them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


def begin(pool: ThreadPoolExecutor, job: Callable[[], T]) -> Future[T]:
    """Run a job in the pool; here and now when the system or the interpreter gives it no thread."""
    once = _Once(job)
    try:
        pool.submit(once)
    except RuntimeError:  # the pool may have queued it all the same
        once()
    return once.future


class _Once(Generic[T]):
    """A job that runs one time, whoever calls it first."""

    def __init__(self, job: Callable[[], T]) -> None:
        self.future: Future[T] = Future()
        self._job, self._first = job, Lock()

    def __call__(self) -> None:
        if not self._first.acquire(blocking=False):
            return
        try:
            self.future.set_result(self._job())
        except BaseException as error:  # noqa: BLE001 - carried to who waits
            self.future.set_exception(error)
