"""One generation on its way through the engine: its options, its state, and where its tokens go.

Errors travel with it, from the engine's thread to the callers that they concern.
"""

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
from core.kit.clock import STOPPED, RequestClock
from core.kit.text_stream import TokenAssembler
from core.options import GenerateConfig
from core.types import FinishReason, GenerateMetrics, Token
from core_runtime.served import ServedModel, room


def own_error(error: BaseException) -> Exception:
    """Return a copy of an error for one request.

    Each is raised in another thread, and none may hold the frames of the step that failed, which
    hold its arrays for as long as somebody keeps the error. The traceback is added as a note.
    """
    try:
        own: BaseException = copy.copy(error)
    except Exception:  # noqa: BLE001 - its class takes other arguments than it keeps
        own = error
    if own is error or not isinstance(own, Exception):
        own = RuntimeError(f"{type(error).__name__}: {error}")
    if error.__traceback__ is not None:
        own.add_note("".join(traceback.format_exception(error)))
    return own


def forget_frames(error: BaseException) -> None:
    """Let go of what the frames of an error hold: weights and caches, as long as it is kept."""
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__


@dataclass(frozen=True, slots=True)
class RequestEnd:
    """The last thing that a request sends."""

    reason: FinishReason
    error: Exception | None
    metrics: GenerateMetrics


Item = list[Token] | RequestEnd
Sink = Callable[[Item], None]  # called on the owner thread; must not wait


class Request:
    """One generation. Any thread makes it.

    The owner thread ends it; or, when it is time to stop, whoever waits for it. ``clock`` was
    started with the call; without one, its time begins now.

    ``config`` has a seed, the caller's or a fresh one. ``drawn`` counts the tokens that were drawn
    for it and read, terminal ones included: the step of its next draw; ``tokens`` are those of
    them that the context holds after the prompt. ``emitted`` counts those that it has sent, and
    ``cached`` those of its prompt that the engine did not have to compute.
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
        self._unfinished = threading.Lock()  # taken, for good, by the thread that ends it
        self.emitted = 0
        self._started = self._began = self._first = time.monotonic()

    @property
    def last_is_next(self) -> bool:
        """True if the token that is drawn next is its last one in any case."""
        return self.drawn + 1 >= self._limit

    @property
    def unwanted(self) -> bool:
        """True if it has ended, or its caller has abandoned it."""
        return self.ended or self._abandoned

    def abandon(self) -> None:
        """Note that nobody wants the rest; from any thread, and from finalizers."""
        self._abandoned = True
        if self._waits:  # thousands may wait: it does not wait for the engine to look at it
            self.fail(GenerationCancelled())

    def begin(self) -> None:
        """Note that the prefill starts; on the owner thread."""
        self._waits = False
        self._began = self._first = time.monotonic()

    def interruption(self) -> Exception | None:
        """Return why it has to stop now (cancelled, timed out, abandoned); None if it continues."""
        try:
            self._clock.check()
        except STOPPED as error:
            return error.with_traceback(None)  # whose frames would hold the engine's arrays
        except BaseException as error:  # noqa: BLE001 - is_set() is the caller's code
            return own_error(error)
        return GenerationCancelled() if self._abandoned else None

    def look(self) -> None:
        """End it if it is time to stop, whatever the engine is doing: for who waits for it."""
        error = None if self.ended else self.interruption()
        if error is not None:
            self.fail(error)

    def take(self, token_id: int, logprob: float | None) -> None:
        """Take the token that was drawn next; afterwards ``ended`` tells whether it was the last.

        On the owner thread. ``logprob`` where `GenerateConfig.return_logprobs` asks.
        """
        self.drawn += 1
        if len(self.ids) + self.drawn <= self._context:  # one that rotates goes on for ever
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
        """End it in peace: what was held back comes out."""
        self._send(self._assembler.finish())
        self._finish(reason, None)

    def fail(self, error: Exception) -> None:
        """End it with an error. Tokens that were sent before remain valid."""
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
    """Return how a request ends that an error ends."""
    return "cancelled" if isinstance(error, GenerationCancelled) else "error"


def seeded(config: GenerateConfig) -> GenerateConfig:
    """Return the config of one request with a seed: its own, or else a fresh one.

    Ask once a request.
    """
    if config.seed is not None:
        return config
    return dataclasses.replace(config, seed=int.from_bytes(os.urandom(8), "big"))


def is_repeatable(config: GenerateConfig) -> bool:
    """Return whether equal prompts are continued alike: greedy, or with a seed."""
    return config.temperature == 0.0 or config.seed is not None
