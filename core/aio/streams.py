"""Asynchronous iterators: tokens of a stream, items of other operations, results of blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Any, Generic, Self, TypeVar, cast

from core.extensions import Asynchronous, AsyncStream
from core.kit.support import block_sizes
from core.options import GenerateConfig
from core.records import without_frames
from core.types import ClassifyResult, FinishReason, GenerateMetrics, Token

T = TypeVar("T")
Record = Callable[[GenerateMetrics], None]

_FIRST, _LARGEST = 16, 512  # prompts of a block: the first results come soon


class AsyncItems(AsyncIterator[T], Generic[T]):
    """Pairs of ``batch_stream``, or results of ``classify_iter``, as they arrive.

    Work begins when the first item is requested. Close an iterator that is not read to its end:
    ``async with contextlib.aclosing(...)``.
    """

    def __init__(self, stream: AsyncStream[T], record: Record) -> None:
        self._stream, self._record = stream, record

    @property
    def metrics(self) -> GenerateMetrics:
        """Cost of the request; final once it has ended."""
        return self._stream.metrics

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await anext(self._stream)
        except BaseException:
            self._record(self._stream.metrics)
            raise

    async def aclose(self) -> None:
        """Stop the request; may be called at any time and more than once."""
        await self._stream.aclose()
        self._record(self._stream.metrics)


class AsyncTokens(AsyncItems[Token]):
    """The tokens of ``generate`` and ``chat``; ``await stream.text()`` is all of their text."""

    def __init__(self, stream: AsyncStream[Any], record: Record) -> None:
        super().__init__(stream, record)
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


class ClassifiedBlocks:
    """Results of ``classify`` for an asynchronous iterable, block by block in constant memory.

    See `core.AsyncStream`; the metrics are the last block's.
    """

    finish_reason: FinishReason | None = None

    def __init__(
        self, prompts: AsyncIterable[str], config: GenerateConfig, calls: Asynchronous
    ) -> None:
        self._prompts, self._config, self._calls = aiter(prompts), config, calls
        self._sizes = block_sizes(_FIRST, _LARGEST)
        self._ready: deque[ClassifyResult] = deque()
        self._closed = False
        self.metrics = GenerateMetrics()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ClassifyResult:
        if not self._ready and not self._closed:
            block = await self._block(next(self._sizes))
            if block:
                results, self.metrics = await self._calls.call_async(
                    "classify", block, self._config
                )
                self._ready.extend(cast("list[ClassifyResult]", results))
        if not self._ready:
            raise StopAsyncIteration
        return self._ready.popleft()

    async def _block(self, size: int) -> list[str]:
        block: list[str] = []
        async for prompt in self._prompts:
            block.append(prompt)
            if len(block) == size:
                break
        return block

    async def aclose(self) -> None:
        """Stop taking prompts."""
        self._closed = True
        self._ready.clear()
