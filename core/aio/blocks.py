"""Classification of an asynchronous stream of prompts, block by block in constant memory."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, cast

from core.kit.support import block_sizes
from core.options import GenerateConfig
from core.types import ClassifyResult, FinishReason, GenerateMetrics

if TYPE_CHECKING:
    from core.extensions import Asynchronous

_FIRST, _LARGEST = 16, 512  # prompts of a call: the first answers come soon


class Blocks:
    """A call of ``classify_iter``. See `core.AsyncStream`; its metrics are the last block's."""

    finish_reason: FinishReason | None = None

    def __init__(
        self, prompts: AsyncIterable[str], config: GenerateConfig, calls: Asynchronous
    ) -> None:
        self._prompts, self._config, self._calls = aiter(prompts), config, calls
        self._sizes = block_sizes(_FIRST, _LARGEST)
        self._ready: deque[ClassifyResult] = deque()
        self._closed = False
        self.metrics = GenerateMetrics()

    def __aiter__(self) -> Blocks:
        return self

    async def __anext__(self) -> ClassifyResult:
        if not self._ready and not self._closed:
            block = await self._block(next(self._sizes))
            if block:
                found = await self._calls.call_async("classify", block, self._config)
                results, self.metrics = cast("tuple[list[ClassifyResult], GenerateMetrics]", found)
                self._ready.extend(results)
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
