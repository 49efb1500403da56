"""`core.Asynchronous`: the plans of a model, awaited; and its streams, read by a task."""

from __future__ import annotations

import inspect
from typing import Any

from core.errors import UnsupportedOperationError
from core.extensions import AsyncStream
from core.types import GenerateMetrics
from core_remote.async_streams import RemoteAsyncItems, RemoteAsyncTokens
from core_remote.contract.model import ContractModel
from core_remote.stream import RemoteStream

_ITEMS = {"batch_stream", "classify_iter"}


class AsyncMethods(ContractModel):
    """Asynchronous calls without a thread each: the task waits for the connection's thread."""

    async def call_async(
        self, operation: str, /, *arguments: Any, **options: Any
    ) -> tuple[object, GenerateMetrics]:
        """Return the result of the method of that name, and its metrics."""
        if not hasattr(self, f"plan_{operation}"):
            self.check_open()
            return getattr(self, operation)(*arguments, **options), GenerateMetrics()
        plan = self._plan(operation, arguments, options)
        return await plan.run_async(), plan.metrics

    def stream_async(self, operation: str, /, *arguments: Any, **options: Any) -> AsyncStream[Any]:
        """Return the stream of the method of that name, for ``async for``."""
        if operation in _ITEMS:
            if not hasattr(self, f"plan_{operation}"):
                raise UnsupportedOperationError(operation, self._backend)
            return RemoteAsyncItems(self._plan(operation, arguments, options))
        stream = getattr(self, operation)(*arguments, **options)
        assert isinstance(stream, RemoteStream)
        return RemoteAsyncTokens(stream)

    def _plan(self, operation: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Return the plan of a call, with its options resolved as the method does."""
        signature = inspect.signature(getattr(self, operation))
        bound = signature.bind(*arguments, **options)
        bound.apply_defaults()
        values = bound.arguments
        if "config" in values:
            config, keywords = values.pop("config"), values.pop("options", {})
            values["request"] = self.resolve_request(operation, config, keywords)
        return getattr(self, f"plan_{operation}")(**values)
