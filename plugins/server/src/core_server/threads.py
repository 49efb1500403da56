"""Threads for work on requests, whose queues keep nothing of a request that has left."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")
_LARGE = 1 << 20  # bytes whose tokens, say, take a second


class Once(Generic[T]):
    """A function that is kept until it is called, or dropped.

    A pool keeps what was cancelled until a thread has time for it, and with it a whole body.
    """

    def __init__(self, function: Callable[[], T]) -> None:
        self._function: Callable[[], T] | None = function

    def __call__(self) -> T:
        function, self._function = self._function, None
        if function is None:
            raise RuntimeError("Nobody waits for this any more.")
        return function()

    def drop(self) -> None:
        """Keep it no longer."""
        self._function = None


class Threads:
    """Threads for all models; what is large waits for what is large, and for nothing else."""

    def __init__(self) -> None:
        few = min(32, (os.cpu_count() or 1) + 4)
        self._small = ThreadPoolExecutor(few, thread_name_prefix="core-server-work")
        self._large = ThreadPoolExecutor(2, thread_name_prefix="core-server-large-work")

    async def run(self, size: int, function: Callable[[], T]) -> T:
        """Return what a function returns, which works on as many bytes."""
        pool, work = self._large if size > _LARGE else self._small, Once(function)
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        finally:
            work.drop()

    def close(self) -> None:
        """Wait for what runs; nothing else begins."""
        for pool in (self._small, self._large):
            pool.shutdown(cancel_futures=True)
