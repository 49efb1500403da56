"""The calls of a model that are under way, so that it can be closed after the last of them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, Self, TypeVar

from core.aio.calls import in_thread
from core.errors import ModelClosedError
from core.extensions import AsyncStream
from core.types import FinishReason, GenerateMetrics

T = TypeVar("T")


class Running:
    """The number of calls under way, in any event loop; after `drain`, new ones are refused."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._draining = False

    def check(self) -> None:
        """Raise `core.ModelClosedError` if the model is draining."""
        if self._draining:
            raise ModelClosedError(
                "The model is closing: it completes running requests and takes no new ones. Use "
                "another model."
            )

    def begin(self) -> None:
        """Count a call. Raises `core.ModelClosedError` if the model is draining."""
        with self._changed:
            self.check()
            self._count += 1

    def end(self) -> None:
        """Count the end of a call."""
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a call while it is awaited. Raises like `begin`."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    async def drain(self) -> None:
        """Refuse new calls, and wait for those under way."""
        given_up = False

        def wait() -> None:
            with self._changed:
                self._changed.wait_for(lambda: given_up or not self._count)

        def stop() -> None:
            nonlocal given_up
            with self._changed:
                given_up = True
                self._changed.notify_all()

        with self._changed:
            self._draining = True
        await in_thread(wait, stop)


class CountedStream(Generic[T]):
    """A stream that counts as under way from its first item to its end.

    See `core.AsyncStream`. A stream that is dropped has ended.
    """

    def __init__(self, stream: AsyncStream[T], running: Running) -> None:
        self._stream, self._running = stream, running
        self._end: weakref.finalize[Any, Any] | None = None
        running.check()

    @property
    def finish_reason(self) -> FinishReason | None:
        """Reason why it ended; None until it has."""
        return self._stream.finish_reason

    @property
    def metrics(self) -> GenerateMetrics:
        """Cost of the request; final once it has ended."""
        return self._stream.metrics

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._end is None:
            self._running.begin()
            self._end = weakref.finalize(self, self._running.end)
            self._end.atexit = False
        try:
            return await anext(self._stream)
        except BaseException:  # its end, its error, or that of a task which was cancelled
            self._end()
            raise

    async def aclose(self) -> None:
        """Stop the request."""
        try:
            await self._stream.aclose()
        finally:
            if self._end is not None:
                self._end()
