"""One generation in the engine: its options, its state, and the sink of its tokens."""

from __future__ import annotations

import copy
import dataclasses
import os
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.errors import GenerationCancelled
from core.kit.base import STOPPED, RequestClock
from core.kit.text_stream import TokenAssembler
from core.options import GenerateConfig
from core.types import FinishReason, GenerateMetrics, Token
from core_runtime.served import ServedModel, room


def own_error(error: BaseException) -> Exception:
    """Return a copy of an error for one request, with the traceback as a note.

    Each copy is raised in another thread, and none may refer to the frames of the failed step:
    they would keep its arrays alive as long as the error.
    """
    try:
        own: BaseException = copy.copy(error)
    except Exception:  # noqa: BLE001 - its class takes other arguments than its args
        own = error
    if own is error or not isinstance(own, Exception):
        own = RuntimeError(f"{type(error).__name__}: {error}")
    if error.__traceback__ is not None:
        own.add_note("".join(traceback.format_exception(error)))
    return own


def forget_frames(error: BaseException) -> None:
    """Clear the frames of an error, which would keep weights and caches alive."""
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__


@dataclass(frozen=True, slots=True)
class RequestEnd:
    """The last item of a request."""

    reason: FinishReason
    error: Exception | None
    metrics: GenerateMetrics


Item = list[Token] | RequestEnd
Sink = Callable[[Item], None]  # called on the owner thread; must not wait


class Request:
    """One generation. Any thread may create it.

    The owner thread ends it; a thread that waits for it ends it on cancel and timeout. ``clock``
    was started with the call; without one, the time starts now.

    ``config`` has a seed, the caller's or a fresh one. ``drawn`` counts the drawn tokens, terminal
    ones included, and is the step of the next draw; ``tokens`` are the ones in the context, after
    the prompt. ``emitted`` counts the tokens sent, ``cached`` the prompt tokens that the engine did
    not compute.
    """

    def __init__(
        self,
        model: ServedModel,
        ids: Sequence[int],
        config: GenerateConfig,
        sink: Sink,
        clock: RequestClock | None = None,
    ) -> None:
        self.ids, self.config = list(ids), seeded(config)
        self.drawn = self.cached = 0
        self.tokens: list[int] = []
        self.ended = False

        self._clock = clock or RequestClock(config)
        self._sink = sink
        self._memory = model.memory
        tokenizer = model.tokenizer
        special = tokenizer.special_texts.named(config.stop)
        self._assembler = TokenAssembler(tokenizer.detokenizer(ids), config.stop, special)
        self._stops = model.stop_ids.union(config.stop_tokens)
        self._limit = min(config.max_tokens, room(model, len(ids)))
        self._context = model.info.context_length

        self._abandoned = False
        self._waits = True
        self._unfinished = threading.Lock()  # locked, once and for all, by the thread that ends it
        self.emitted = 0
        self._started = self._began = self._first = time.monotonic()

    @property
    def last_is_next(self) -> bool:
        """True if the next token is the last one in any case."""
        return self.drawn + 1 >= self._limit

    @property
    def unwanted(self) -> bool:
        """True if the request has ended, or its caller has abandoned it."""
        return self.ended or self._abandoned

    def abandon(self) -> None:
        """Mark the request as abandoned; from any thread, and from finalizers."""
        self._abandoned = True
        if self._waits:  # thousands may wait: it ends without the engine
            self.fail(GenerationCancelled())

    def begin(self) -> None:
        """Record the start of the prefill; on the owner thread."""
        self._waits = False
        self._began = self._first = time.monotonic()

    def interruption(self) -> Exception | None:
        """Return the error that stops it now (cancelled, timed out, abandoned), or None."""
        try:
            self._clock.check()
        except STOPPED as error:
            return error.with_traceback(None)  # its frames would keep the engine's arrays alive
        except BaseException as error:  # noqa: BLE001 - is_set() is the caller's code
            return own_error(error)
        return GenerationCancelled() if self._abandoned else None

    def look(self) -> None:
        """End the request on cancel and timeout; for threads that wait for it."""
        error = None if self.ended else self.interruption()
        if error is not None:
            self.fail(error)

    def take(self, token_id: int, logprob: float | None) -> None:
        """Take the next drawn token; ``ended`` is True afterwards if it was the last.

        On the owner thread. ``logprob`` with `GenerateConfig.return_logprobs`.
        """
        self.drawn += 1
        if len(self.ids) + self.drawn <= self._context:  # a sliding context has no end
            self.tokens.append(token_id)
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
        """End the request normally, and send the tokens that were held back."""
        self._send(self._assembler.finish())
        self._finish(reason, None)

    def fail(self, error: Exception) -> None:
        """End the request with an error; tokens that were sent before stay valid."""
        if not self.ended:
            self._finish(reason_of(error), error)

    def _send(self, tokens: list[Token]) -> None:
        if tokens:
            self.emitted += len(tokens)
            self._sink(tokens)

    def _finish(self, reason: FinishReason, error: Exception | None) -> None:
        if self._unfinished.acquire(blocking=False):
            self.ended = True
            self._sink(RequestEnd(reason, error, self._metrics()))

    def _metrics(self) -> GenerateMetrics:
        now = time.monotonic()
        memory = self._memory()
        return GenerateMetrics(
            prompt_tokens=len(self.ids),
            cached_prompt_tokens=self.cached,
            generated_tokens=self.emitted,
            prefill_seconds=self._first - self._began,
            decode_seconds=now - self._first if self.drawn else 0.0,
            total_seconds=now - self._started,
            peak_memory_bytes=memory.peak,
            active_memory_bytes=memory.active,
        )


def reason_of(error: Exception) -> FinishReason:
    """Return the finish reason of a request that failed with this error."""
    return "cancelled" if isinstance(error, GenerationCancelled) else "error"


def seeded(config: GenerateConfig) -> GenerateConfig:
    """Return the config with a seed, its own or a fresh one; call this once per request."""
    if config.seed is not None:
        return config
    return dataclasses.replace(config, seed=int.from_bytes(os.urandom(8), "big"))


def is_repeatable(config: GenerateConfig) -> bool:
    """Return True if equal prompts have equal continuations: greedy, or with a seed."""
    return config.temperature == 0.0 or config.seed is not None
