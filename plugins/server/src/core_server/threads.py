"""Threads for work on requests; their queues release the data of cancelled requests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")
_LARGE = 1 << 20  # bytes; to tokenise them, for example, takes a second


def call_in_loop(
    loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: object
) -> bool:
    """Schedule a call in an event loop, from any thread. Returns False if the loop has ended."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        return False
    return True


class Once(Generic[T]):
    """A function that is referenced until it is called or dropped.

    A pool keeps cancelled work, and with it a request's body, until a thread is free.
    """

    def __init__(self, function: Callable[[], T]) -> None:
        self._function: Callable[[], T] | None = function

    def __call__(self) -> T:
        function, self._function = self._function, None
        if function is None:
            raise RuntimeError("The function was called already, or dropped.")
        return function()

    def drop(self) -> None:
        """Release the function."""
        self._function = None


class Threads:
    """Threads for all models; large work waits only for other large work."""

    def __init__(self) -> None:
        few = min(32, (os.cpu_count() or 1) + 4)
        self._small = ThreadPoolExecutor(few, thread_name_prefix="core-server-work")
        self._large = ThreadPoolExecutor(2, thread_name_prefix="core-server-large-work")

    async def run(self, size: int, function: Callable[[], T]) -> T:
        """Return the result of a function that works on ``size`` bytes, run on a thread."""
        pool, work = self._large if size > _LARGE else self._small, Once(function)
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        finally:
            work.drop()

    def close(self) -> None:
        """Wait for running work; queued work is cancelled."""
        for pool in (self._small, self._large):
            pool.shutdown(cancel_futures=True)
