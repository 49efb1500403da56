"""The iterators that tasks read, over the streams of any `core.Asynchronous`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, Self, TypeVar

from core.aio.draining import Running
from core.extensions import AsyncStream
from core.records import without_frames
from core.types import FinishReason, GenerateMetrics, Token

T = TypeVar("T")
Record = Callable[[GenerateMetrics], None]


class AsyncItems(AsyncIterator[T], Generic[T]):
    """Pairs of ``batch_stream``, or results of ``classify_iter``, as they arrive.

    Work begins when the first item is requested. Close an iterator that is not read to its end:
    ``async with contextlib.aclosing(...)``. A closed or draining model raises
    `core.ModelClosedError` at the call.
    """

    def __init__(self, stream: AsyncStream[T], running: Running, record: Record) -> None:
        running.check()
        self._stream, self._running, self._record = stream, running, record
        self._end: Callable[[], object] | None = None  # once it counts as running

    @property
    def metrics(self) -> GenerateMetrics:
        """Cost of the request; final once it has ended."""
        return self._stream.metrics

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._end is None:
            self._end = self._running.call_of(self)
        try:
            return await anext(self._stream)
        except BaseException:  # its end, its error, or that of a task which was cancelled
            self._end()
            self._record(self._stream.metrics)
            raise

    async def aclose(self) -> None:
        """Stop the request; may be called at any time and more than once."""
        try:
            await self._stream.aclose()
        finally:
            if self._end is not None:
                self._end()
        self._record(self._stream.metrics)


class AsyncTokens(AsyncItems[Token]):
    """The tokens of ``generate`` and ``chat``; ``await stream.text()`` is all of their text."""

    def __init__(self, stream: AsyncStream[Any], running: Running, record: Record) -> None:
        super().__init__(stream, running, record)
        self._parts: list[str] = []
        self._error: Exception | None = None

    @property
    def finish_reason(self) -> FinishReason | None:
        """Reason why the stream ended; None until it has."""
        return self._stream.finish_reason

    async def __anext__(self) -> Token:
        try:
            token = await super().__anext__()
        except StopAsyncIteration:
            raise
        except Exception as error:
            self._error = without_frames(error)
            raise
        self._parts.append(token.text)
        return token

    async def text(self) -> str:
        """Read the stream to its end, and return all of its text, like `core.TokenStream.text`."""
        if self._error is not None:
            raise without_frames(self._error)
        async for _ in self:
            pass
        return "".join(self._parts)
