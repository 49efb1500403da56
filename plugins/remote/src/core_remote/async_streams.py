"""Streams of remote models for ``async for``: tokens, and items of other operations."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Protocol

from core.types import FinishReason, GenerateMetrics, Token
from core_remote.stream import RemoteStream


class RemoteAsyncTokens:
    """A token stream that a task reads. See `core.AsyncStream`."""

    def __init__(self, stream: RemoteStream) -> None:
        self._stream = stream

    @property
    def finish_reason(self) -> FinishReason | None:
        """The reason why the stream ended."""
        return self._stream.finish_reason

    @property
    def metrics(self) -> GenerateMetrics:
        """The metrics of the stream."""
        return self._stream.metrics

    def __aiter__(self) -> RemoteAsyncTokens:
        return self

    async def __anext__(self) -> Token:
        token = await self._stream.next_async()
        if token is None:
            raise StopAsyncIteration
        return token

    async def aclose(self) -> None:
        """Stop the request."""
        await self._stream.close_async()


class Items(Protocol):
    """A call that yields its results one by one."""

    @property
    def metrics(self) -> GenerateMetrics:
        """The metrics until now."""
        ...

    def read_async(self) -> AsyncGenerator[Any, None]:
        """Return an async iterator over the results."""
        ...


class RemoteAsyncItems:
    """An async stream over the items of another operation. See `core.AsyncStream`."""

    finish_reason: FinishReason | None = None

    def __init__(self, items: Items) -> None:
        self._items, self._reading = items, items.read_async()

    @property
    def metrics(self) -> GenerateMetrics:
        """The metrics until now."""
        return self._items.metrics

    def __aiter__(self) -> RemoteAsyncItems:
        return self

    async def __anext__(self) -> Any:
        return await anext(self._reading)

    async def aclose(self) -> None:
        """Stop the request."""
        await self._reading.aclose()
