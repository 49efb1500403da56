"""The contract for asyncio: every operation of a loaded model, awaited.

::

    model = await core.aio.load_model(path)
    results = await model.classify(prompts, labels=["finance", "sports"])
    async with contextlib.aclosing(model.generate("Once upon a time")) as stream:
        async for token in stream:
            print(token.text, end="")

``core.aio.of(model)`` wraps a loaded model. Each call runs in a separate thread, except for models
that wait in the event loop (`core.Asynchronous`), such as the models of a server. Cancelling a task
stops its request; the model remains usable.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self, Unpack, cast

from core import api
from core.aio.calls import ThreadCalls, in_thread
from core.aio.draining import Running
from core.aio.operations import AsyncOperations
from core.aio.streams import AsyncItems, AsyncTokens
from core.extensions import Asynchronous
from core.kit.support import block_sizes, unsupported_method
from core.options import ClassifyOptions, GenerateConfig, LoadConfig, LoadOptions, resolve_classify
from core.protocols import TextModel
from core.types import ClassifyResult, FinishReason, GenerateMetrics, ModelInfo

__all__ = ["AsyncItems", "AsyncModel", "AsyncTokens", "load_model", "of"]

_FIRST, _LARGEST = 16, 512  # prompts of a block: the first results come soon
_LAST: ContextVar[dict[object, GenerateMetrics]] = ContextVar("core.aio.metrics")


async def load_model(
    path: str | os.PathLike[str],
    config: LoadConfig | None = None,
    /,
    **options: Unpack[LoadOptions],
) -> AsyncModel:
    """Load a model, as `core.load_model` does, in a thread.

    A load cannot be stopped: if the task is cancelled meanwhile, the model is closed after it.
    """
    cancelled = False

    def work() -> TextModel:
        model = api.load_model(path, config, **options)
        if cancelled:
            model.close()
        return model

    def stop() -> None:
        nonlocal cancelled
        cancelled = True

    return of(await in_thread(work, stop))


def of(model: TextModel) -> AsyncModel:
    """Return the same model for asyncio. Both may be used concurrently; closing one closes both."""
    return AsyncModel(model)


class AsyncModel(AsyncOperations):
    """A `core.TextModel` for asyncio; methods that the model lacks raise an error.

    Streams raise for invalid options at the call, everything else when awaited. Several calls of
    one event loop run concurrently, as far as the model allows, and so do calls of several loops.
    ``classify_iter`` also takes an asynchronous iterable, whose prompts it classifies in blocks.
    """

    def __init__(self, model: TextModel) -> None:
        self.model = model
        self._calls = model if isinstance(model, Asynchronous) else ThreadCalls(model)
        self._key = object()
        self._running = Running()

    def __repr__(self) -> str:
        return f"<AsyncModel of {self.model!r}>"

    @property
    def info(self) -> ModelInfo:
        """Facts about the model."""
        return self.model.info

    @property
    def model_type(self) -> str:
        """The architecture's name."""
        return self.model.model_type

    @property
    def metrics(self) -> GenerateMetrics:
        """The metrics of the last call that this task finished; all zero before the first."""
        return _LAST.get({}).get(self._key, GenerateMetrics())

    async def aclose(self, *, drain: bool = False) -> None:
        """Close the model, in a thread that waits for running calls. Closing twice is fine.

        Streams end early. With ``drain``, calls and streams of this object that are under way end
        first, and new ones raise `core.ModelClosedError`: for replacing a model under load. If the
        task is cancelled meanwhile, for example by a time limit, the model refuses new calls, and
        is not closed.
        """
        if drain:
            await self._running.drain()
        await asyncio.shield(in_thread(self.model.close))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        await self.aclose()

    async def _call(self, operation: str, /, *arguments: Any, **options: Any) -> Any:
        self._require(operation)
        with self._running.call():
            result, metrics = await self._calls.call_async(operation, *arguments, **options)
        self._record(metrics)
        return result

    def _tokens(self, operation: str, /, *arguments: Any, **options: Any) -> AsyncTokens:
        self._require(operation)
        stream = self._calls.stream_async(operation, *arguments, **options)
        return AsyncTokens(stream, self._running, self._record)

    def _items(self, operation: str, /, *arguments: Any, **options: Any) -> AsyncItems[Any]:
        prompts, config, *_ = arguments
        if operation == "classify_iter" and isinstance(prompts, AsyncIterable):
            request = resolve_classify(config, cast("ClassifyOptions", options))
            self.model.classify([], request)  # raises if it does not support these options
            blocks = _ClassifiedBlocks(prompts, request, self._calls)
            return AsyncItems(blocks, self._running, self._record)
        self._require(operation)
        stream = self._calls.stream_async(operation, *arguments, **options)
        return AsyncItems(stream, self._running, self._record)

    def _require(self, operation: str) -> None:
        """Raise `core.UnsupportedOperationError` for a method that the model lacks."""
        if getattr(self.model, operation, None) is None:
            raise unsupported_method(operation, self.model)

    def _record(self, metrics: GenerateMetrics) -> None:
        _LAST.set({**_LAST.get({}), self._key: metrics})


class _ClassifiedBlocks:
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
            try:
                await self._classify_block()
            except BaseException:  # as of any stream whose request has failed or was cancelled
                self._closed = True
                raise
        if not self._ready:
            raise StopAsyncIteration
        return self._ready.popleft()

    async def _classify_block(self) -> None:
        block = await self._block(next(self._sizes))
        if block:
            results, self.metrics = await self._calls.call_async("classify", block, self._config)
            self._ready.extend(cast("list[ClassifyResult]", results))

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
