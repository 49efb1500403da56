"""Tokens of a generation, carried from the thread that reads them to the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from functools import partial

from core.options import GenerateConfig
from core.protocols import Capability, TokenStream
from core.types import FinishReason, GenerateMetrics, Token
from core_server.threads import Once, call_in_loop

_READERS = 256  # threads that read streams: more than any backend runs concurrently


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a generation: its finish reason and its metrics."""

    reason: FinishReason
    metrics: GenerateMetrics


def changed(config: GenerateConfig, **values: object) -> GenerateConfig:
    """Return a copy of a config with other values, which must be valid.

    `dataclasses.replace` would validate all others again, for each answer of a request.
    """
    other = copy(config)
    for name, value in values.items():
        object.__setattr__(other, name, value)
    return other


class TextQueue:
    """The generations of all clients on one model, which the backend runs concurrently.

    A backend that cannot gets one at a time. ``counted`` are the counters of complete
    texts, by the names of `core_server.routes.metrics`.
    """

    def __init__(self, capabilities: Collection[Capability]) -> None:
        readers = _READERS if Capability.PARALLEL in capabilities else 1
        self.counted: Counter[str] = Counter()
        self._pool = ThreadPoolExecutor(readers, thread_name_prefix="core-server-reader")

    async def generate(
        self,
        begins: Sequence[Callable[[GenerateConfig], TokenStream]],
        configs: Sequence[GenerateConfig],
    ) -> AsyncGenerator[tuple[int, Token | Ended], None]:
        """Yield the tokens of each ``begin(config)``, then `Ended`, with its index.

        Closing it early cancels the generations. The functions are called on threads, because a
        chat template takes time.
        """
        loop, cancel = asyncio.get_running_loop(), threading.Event()
        queue: asyncio.Queue[tuple[int, Token | Ended | BaseException]] = asyncio.Queue()

        def put(index: int, item: Token | Ended | BaseException) -> None:
            if not call_in_loop(loop, queue.put_nowait, (index, item)):
                cancel.set()

        def read(index: int, config: GenerateConfig) -> None:
            try:
                stream = begins[index](changed(config, cancel=cancel))
                put(index, _read(stream, partial(put, index)))
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                put(index, error)

        works = [Once(partial(read, index, config)) for index, config in enumerate(configs)]
        futures = [self._pool.submit(work) for work in works]
        open_ = len(configs)
        try:
            while open_:
                index, item = await queue.get()
                if isinstance(item, BaseException):
                    raise item
                if isinstance(item, Ended):
                    open_ -= 1
                    self.counted.update(
                        text_texts=1,
                        text_prompt_tokens=item.metrics.prompt_tokens,
                        text_cached_tokens=item.metrics.cached_prompt_tokens,
                        text_generated_tokens=item.metrics.generated_tokens,
                    )
                yield index, item
        finally:
            cancel.set()
            for future, work in zip(futures, works, strict=True):
                future.cancel()
                work.drop()

    def close(self) -> None:
        """Wait for the running generations."""
        self._pool.shutdown()


def _read(stream: TokenStream, put: Callable[[Token], None]) -> Ended:
    try:
        for token in stream:
            put(token)
    finally:
        stream.close()
    return Ended(stream.finish_reason or "stop", stream.metrics)
