"""Forms of one call: awaited in an event loop, and with a config in place of keywords."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from core.options import GenerateConfig
from core.protocols import Capability, TextModel
from core_conformance.checking.script.record import STREAMS
from core_conformance.checking.subject import Subject

_OVER, _NEVER = 1e-9, 600.0  # seconds


class Awaited:
    """Calls the operations of a model through `core.Asynchronous`, each in a new event loop.

    A stream is read to its end at the call; its iterator then gives what came, or raises it.
    """

    def __init__(self, model: TextModel) -> None:
        self._model: Any = model

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        if operation in ("encode", "decode", "render_chat"):
            method: Callable[..., Any] = getattr(self._model, operation)
            return method
        run = self._stream if operation in STREAMS else self._call

        def call(*arguments: Any, **options: Any) -> Any:
            return asyncio.run(run(operation, *arguments, **options))

        return call

    async def _call(self, operation: str, *arguments: Any, **options: Any) -> Any:
        results, _ = await self._model.call_async(operation, *arguments, **options)
        return results

    async def _stream(self, operation: str, *arguments: Any, **options: Any) -> _Stream:
        stream = self._model.stream_async(operation, *arguments, **options)
        read = _Stream()
        try:
            async for item in stream:
                read.items.append(item)
        except Exception as error:  # noqa: BLE001 - raised again by the iterator
            read.error = error
        read.finish_reason = stream.finish_reason
        return read


def forms(subject: Subject, model: TextModel) -> Iterator[tuple[str, Any]]:
    """Yield the forms of a model's operations, each after the beginning of its name."""
    yield "", model
    if subject.declares(Capability.ASYNCHRONOUS):
        yield "awaited ", Awaited(model)


class Configured:
    """Gives the operations of a model their options as a config, which keywords correct.

    The config also has fields of other operations. The keyword is a timeout: the config's is over
    before anything is done.
    """

    def __init__(self, model: TextModel, **foreign: Any) -> None:
        self._model, self._foreign = model, foreign

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._model, operation)
        if operation in ("encode", "decode", "render_chat"):
            return method

        def call(*arguments: Any, **options: Any) -> Any:
            *others, last = arguments
            if isinstance(last, GenerateConfig):  # submit takes nothing else
                return method(*others, replace(last, **self._foreign))
            config = GenerateConfig(**{**self._foreign, **options, "timeout": _OVER})
            return method(*arguments, config, timeout=_NEVER)

        return call


class _Stream(Iterator[Any]):
    """The items of a stream, and the error that ended it."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.error: Exception | None = None
        self.finish_reason: str | None = None

    def __next__(self) -> Any:
        if self.items:
            return self.items.pop(0)
        if self.error is not None:
            raise self.error
        raise StopIteration

    def close(self) -> None:
        """Do nothing: the stream was read to its end."""
