"""`core.Asynchronous`: the plans of a model, awaited; and its streams, read by a task."""

from __future__ import annotations

from typing import Any

from core.errors import UnsupportedOperationError
from core.extensions import AsyncStream
from core.types import GenerateMetrics
from core_remote.async_streams import RemoteAsyncItems, RemoteAsyncTokens
from core_remote.contract.model import ContractModel
from core_remote.stream import RemoteStream

_ITEMS = {"batch_stream": "pairs", "classify_iter": "results"}


class AsyncMethods(ContractModel):
    """Asynchronous calls without a thread each: the task waits for the connection's thread."""

    async def call_async(
        self, operation: str, /, *arguments: Any, **options: Any
    ) -> tuple[object, GenerateMetrics]:
        """Return the result of the method of that name, and its metrics."""
        prepare = getattr(self, f"plan_{operation}", None)
        if prepare is None:
            self.check_open()
            return getattr(self, operation)(*arguments, **options), GenerateMetrics()
        plan = prepare(*arguments, **options)
        return await plan.run_async(), plan.metrics

    def stream_async(self, operation: str, /, *arguments: Any, **options: Any) -> AsyncStream[Any]:
        """Return the stream of the method of that name, for ``async for``."""
        if operation in _ITEMS:
            prepare = getattr(self, _ITEMS[operation], None)
            if prepare is None:
                raise UnsupportedOperationError(operation, self._backend)
            return RemoteAsyncItems(prepare(*arguments, **options))
        stream = getattr(self, operation)(*arguments, **options)
        assert isinstance(stream, RemoteStream)
        return RemoteAsyncTokens(stream)
