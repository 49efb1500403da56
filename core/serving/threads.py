"""Work on other threads that goes on without them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def begin(pool: ThreadPoolExecutor, job: Callable[[], T]) -> Future[T]:
    """Run a job in the pool; here and now when the interpreter ends and starts no threads."""
    try:
        return pool.submit(job)
    except RuntimeError:
        done: Future[T] = Future()
        done.set_result(job())
        return done
