"""One generation on its way through the engine: its options, its state, and where its tokens go."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.clock import RequestClock
from core.errors import GenerationCancelled, GenerationTimeout
from core.options import GenerateConfig
from core.serving.failures import own_error
from core.serving.served import ServedModel, room
from core.text_stream import TokenAssembler
from core.types import FinishReason, GenerateMetrics, Token


@dataclass(frozen=True, slots=True)
class End:
    """The last thing that a request sends."""

    reason: FinishReason
    error: Exception | None
    metrics: GenerateMetrics


Item = list[Token] | End
Sink = Callable[[Item], None]  # called on the owner thread; must not wait


class Request:
    """Made by any thread; once its prefill has begun, only the owner thread ends it.

    ``config`` has a seed, the caller's or a fresh one. ``drawn`` counts the tokens that were drawn
    for it and read, terminal ones included: the step of its next draw. ``emitted`` counts
    those that it has sent.
    """

    def __init__(
        self, model: ServedModel, ids: Sequence[int], config: GenerateConfig, sink: Sink
    ) -> None:
        self.ids, self.config = list(ids), seeded(config)
        self.drawn = 0
        self.ended = False
        self._clock = RequestClock(config)
        self._sink = sink
        self._memory = model.memory
        self._assembler = TokenAssembler(model.tokenizer.detokenizer(ids), config.stop)
        self._stops = model.stop_ids.union(config.stop_tokens)
        self._limit = min(config.max_tokens, room(model, len(ids)))
        self._abandoned = False
        self._waits = True
        self._unfinished = threading.Lock()  # taken, for good, by the thread that ends it
        self.emitted = 0
        self._started = self._began = self._first = time.monotonic()

    @property
    def last_is_next(self) -> bool:
        """Whether the token that is drawn next is its last one in any case."""
        return self.drawn + 1 >= self._limit

    def abandon(self) -> None:
        """Nobody wants the rest. From any thread, and from finalizers."""
        self._abandoned = True
        if self._waits:  # thousands may wait: it does not wait for the engine to look at it
            self.fail(GenerationCancelled())

    def begin(self) -> None:
        """The prefill starts."""
        self._waits = False
        self._began = self._first = time.monotonic()

    def interruption(self) -> Exception | None:
        """Why it has to stop now: cancelled, timed out, or abandoned."""
        try:
            self._clock.check()
        except (GenerationCancelled, GenerationTimeout) as error:
            return error.with_traceback(None)  # whose frames would hold the engine's arrays
        except BaseException as error:  # noqa: BLE001 - is_set() is the caller's code
            return own_error(error)
        return GenerationCancelled() if self._abandoned else None

    def take(self, token_id: int, logprob: float | None) -> None:
        """One token was drawn; afterwards ``ended`` tells whether it was the last."""
        self.drawn += 1
        if self.drawn == 1:
            self._first = time.monotonic()
        if token_id in self._stops:
            self.end("stop")
            return
        self._send(self._assembler.add(token_id, logprob))
        if self._assembler.stopped:
            self.end("stop")
        elif self.drawn >= self._limit:
            self.end("length")

    def end(self, reason: FinishReason) -> None:
        """It came to its end; what was held back comes out."""
        self._send(self._assembler.finish())
        self._finish(reason, None)

    def fail(self, error: Exception) -> None:
        """It ends with an error. What it has sent before stays good."""
        if not self.ended:
            cancelled = isinstance(error, GenerationCancelled)
            self._finish("cancelled" if cancelled else "error", error)

    def _send(self, tokens: list[Token]) -> None:
        if tokens:
            self.emitted += len(tokens)
            self._sink(tokens)

    def _finish(self, reason: FinishReason, error: Exception | None) -> None:
        if self._unfinished.acquire(blocking=False):
            self.ended = True
            self._sink(End(reason, error, self._metrics()))

    def _metrics(self) -> GenerateMetrics:
        now = time.monotonic()
        memory = self._memory()
        return GenerateMetrics(
            prompt_tokens=len(self.ids),
            generated_tokens=self.emitted,
            prefill_seconds=self._first - self._began,
            decode_seconds=now - self._first if self.drawn else 0.0,
            total_seconds=now - self._started,
            peak_memory_bytes=memory.peak,
            active_memory_bytes=memory.active,
        )


def seeded(config: GenerateConfig) -> GenerateConfig:
    """The config of one request with a seed: its own, or else a fresh one. Ask once a request."""
    if config.seed is not None:
        return config
    return dataclasses.replace(config, seed=int.from_bytes(os.urandom(8), "big"))
