"""Saboteurs of async calls: other answers, requests that continue, a blocked event loop."""

from __future__ import annotations

from typing import Any

from core.aio.calls import ThreadCalls, ThreadStream
from core.extensions import AsyncStream
from core.options import GenerateConfig
from core.types import GenerateMetrics
from core_conformance.proof.registry import saboteur
from core_conformance.reference.optional import ReferenceModel


@saboteur("awaited-without-metrics", "a call that is awaited has no metrics")
class AwaitedWithoutMetrics(ReferenceModel):
    async def call_async(
        self, operation: str, /, *arguments: object, **options: object
    ) -> tuple[object, GenerateMetrics]:
        """Return the metrics of the event loop's thread, which has called nothing."""
        results, _ = await super().call_async(operation, *arguments, **options)
        return results, GenerateMetrics()


class _Shortened(ThreadStream):
    """Leaves the first token out."""

    _begun = False

    async def __anext__(self) -> Any:
        if not self._begun:
            self._begun = True
            await super().__anext__()
        return await super().__anext__()


@saboteur("async-stream-late", "the first token of an awaited stream is lost")
class AsyncStreamLate(ReferenceModel):
    def stream_async(self, operation: str, /, *arguments: Any, **options: Any) -> AsyncStream[Any]:
        stream = super().stream_async(operation, *arguments, **options)
        stream.__class__ = _Shortened
        return stream


class _Lazy:
    """Makes its stream, and finds what is wrong, when it is read."""

    finish_reason, metrics = None, GenerateMetrics()

    def __init__(self, make: Any) -> None:
        self._make = make
        self._stream: Any = None

    def __getattribute__(self, name: str) -> Any:
        stream = object.__getattribute__(self, "__dict__").get("_stream")
        if stream is not None and name in ("finish_reason", "metrics"):
            return getattr(stream, name)
        return object.__getattribute__(self, name)

    def __aiter__(self) -> _Lazy:
        return self

    async def __anext__(self) -> Any:
        self._stream = self._made()
        return await anext(self._stream)

    def _made(self) -> Any:
        return self._make() if self._stream is None else self._stream

    async def aclose(self) -> None:
        """Close what was made."""
        self._stream = self._made()
        await self._stream.aclose()


@saboteur("async-errors-late", "wrong options of an awaited stream raise when it is read")
class AsyncErrorsLate(ReferenceModel):
    def stream_async(self, operation: str, /, *arguments: Any, **options: Any) -> AsyncStream[Any]:
        make = super().stream_async
        lazy: Any = _Lazy(lambda: make(operation, *arguments, **options))
        return lazy  # type: ignore[no-any-return]


class _NeverClosed(ThreadStream):
    async def aclose(self) -> None:
        """Forgotten."""


@saboteur("aclose-forgotten", "closing an awaited stream does nothing")
class AcloseForgotten(ReferenceModel):
    def stream_async(self, operation: str, /, *arguments: Any, **options: Any) -> AsyncStream[Any]:
        stream = super().stream_async(operation, *arguments, **options)
        stream.__class__ = _NeverClosed
        return stream


@saboteur("loop-stands-still", "the event loop waits for a call")
class LoopStandsStill(ReferenceModel):
    async def call_async(
        self, operation: str, /, *arguments: object, **options: object
    ) -> tuple[object, GenerateMetrics]:
        """Return the method's result, called where it should be awaited."""
        return getattr(self, operation)(*arguments, **options), self.metrics


class LosesConfigs(ThreadCalls):
    def stream_async(self, operation: str, /, *arguments: Any, **options: Any) -> ThreadStream:
        """Pass the config on, but for a request that is submitted."""
        if operation == "submit":
            arguments = (arguments[0], GenerateConfig())
        return super().stream_async(operation, *arguments, **options)


@saboteur(
    "submit-in-a-loop-loses-its-config",
    "a request that is submitted in an event loop has the default options",
)
class SubmitInALoopLosesItsConfig(ReferenceModel):
    calls_class = LosesConfigs
