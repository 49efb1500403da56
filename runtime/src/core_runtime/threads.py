"""Work on other threads, which continues without the caller, or which the caller waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Lock
from typing import Generic, TypeVar

from core.kit.base import Check, never_stop

T = TypeVar("T")

LOOK_SECONDS = 0.1
"""Interval at which a waiting thread polls its check."""


class Here(threading.local):
    """Thread-local state; ``turn`` is the lock held by the current job."""

    turn: AbstractContextManager[object] | None = None


here = Here()
"""The state of the running thread: whoever enters a turn for a job sets it, for `aside`."""


def begin(pool: ThreadPoolExecutor, job: Callable[[], T]) -> Future[T]:
    """Run a job in the pool, or on this thread if no thread can be started."""
    once = _Once(job)
    try:
        pool.submit(once)
    except RuntimeError:  # the pool may have queued it nevertheless
        once()
    return once.future


@contextmanager
def aside() -> Iterator[None]:
    """Leave the turn of this thread's job, if any, while it waits for another thread.

    The other thread may need a turn first.
    """
    turn, here.turn = here.turn, None
    if turn is None:
        yield
        return

    turn.__exit__(None, None, None)
    try:
        yield
    finally:
        turn.__enter__()
        here.turn = turn


def awaited(future: Future[T], check: Check) -> T:
    """Wait for the result of a future. ``check`` may end the wait; the future continues alone."""
    with aside():
        while True:
            with suppress(TimeoutError):
                future.exception(LOOK_SECONDS)
            if future.done():
                return future.result()
            check()


def outlasting(job: Callable[[], T], check: Check) -> T:
    """Run a job that cannot be stopped on a separate thread; it continues if ``check`` raises.

    It also continues after an interrupt of the caller. The interpreter's end waits for it.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="core-outlasting")
    future = begin(pool, job)
    pool.shutdown(wait=False)
    try:
        return awaited(future, check)
    finally:
        if future.done():
            pool.shutdown()  # its thread is ending: afterwards it is not counted any more


class _Once(Generic[T]):
    """A job that runs once, at its first call."""

    def __init__(self, job: Callable[[], T]) -> None:
        self.future: Future[T] = Future()
        self._job, self._first = job, Lock()

    def __call__(self) -> None:
        if not self._first.acquire(blocking=False):
            return
        try:
            self.future.set_result(self._job())
        except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
            self.future.set_exception(error)


def interruptible(make: Callable[[threading.Event], T], undo: Callable[[T], None]) -> T:
    """Run ``make`` on a separate thread, and return its result or raise its error.

    Its event is set when the caller stops waiting; a result after that is passed to ``undo``. This
    is for libraries with callbacks, such as llama.cpp's for logging: a signal handler runs on the
    main thread, and could not raise within such a callback.
    """
    stop, results = threading.Event(), list[T]()

    def drop() -> None:
        with suppress(IndexError):  # the other thread was first
            undo(results.pop())

    def job() -> None:
        results.append(make(stop))
        if stop.is_set():
            drop()

    try:
        outlasting(job, never_stop)
        return results[0]  # not pop(): an interrupt after the call would lose it
    except BaseException:
        stop.set()
        drop()
        raise
