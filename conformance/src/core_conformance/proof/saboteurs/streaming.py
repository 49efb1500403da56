"""Saboteurs of streams."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Sequence
from queue import Full, Queue
from typing import Any

from core.aio.calls import ThreadCalls, in_thread
from core.kit.base import TokenStreamBase
from core.types import FinishReason, GenerateMetrics, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.engine import Generation
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.stream import Record, ReferenceStream, SubmittedStream
from core_conformance.reference.vocabulary import EOS


@saboteur("logprobs-unasked", "every token has a logprob, asked or not")
class LogprobsUnasked(Generation):
    def take(self, logits: Sequence[float]) -> list[Token]:
        return [
            dataclasses.replace(token, logprob=-1.0 if token.logprob is None else token.logprob)
            for token in super().take(logits)
        ]


@saboteur(
    "hot-is-eos", "weights underflow at high temperatures, and what is drawn then is always EOS"
)
class HotIsEos(Generation):
    def take(self, logits: Sequence[float]) -> list[Token]:
        if self.config.temperature < 15:
            return super().take(logits)
        return super().take([0.0 if i == EOS else -1e9 for i in range(len(logits))])


@saboteur(
    "always-stop",
    'a generation that max_tokens ended says "stop"',
)
class AlwaysStop(Generation):
    def _end(self, reason: FinishReason) -> list[Token]:
        return super()._end("stop")


@saboteur("over-before", "finish_reason is there before the end")
class OverBefore(ReferenceStream):
    @property
    def finish_reason(self) -> FinishReason | None:
        return self._reason or "stop"


@saboteur(
    "leftovers",
    "a request that ends before its time leaves its last token to be read before the next prompt",
)
class Leftovers(ReferenceStream):
    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        engine: Any = self.engine
        row.prompt, engine.left = (*getattr(engine, "left", ()), *row.prompt), ()
        try:
            yield from super().generate(row, meter)
        finally:
            if row.reason is None:
                engine.left = tuple(row.context[-1:])


@saboteur(
    "cancelled-after-its-end", "close() says that a stream was cancelled, which had ended before"
)
class CancelledBehindItsEnd(ReferenceStream):
    def close(self) -> None:
        ended = self._reason in ("stop", "length")
        super().close()
        if ended:
            self._reason = "cancelled"


@saboteur(
    "close-unheard-in-line",
    "a stream that waits in line does not hear that another thread closes it",
)
class CloseUnheardInLine(ReferenceStream):
    def _check(self, row: Generation) -> None:
        self.engine.check(row)


@saboteur("text-of-the-rest", "text() lacks what was read before")
class TextOfTheRest(ReferenceStream):
    def text(self) -> str:
        return "".join(token.text for token in self)


_WAIT = 0.02  # seconds
_READING = {"score", "score_tokens", "hidden_states", "inspect_attention"}


@saboteur(
    "close-by-place",
    "close() of a submitted stream that has ended stops the request that has its place",
)
class CloseByPlace(SubmittedStream):
    """Knows a request by its place in a table."""

    def __init__(self, stream: ReferenceStream, record: Record) -> None:
        super().__init__(stream, record)
        table: dict[int, CloseByPlace] = stream.engine.__dict__.setdefault("table", {})
        used = [place for place, other in table.items() if other._worker.is_alive()]
        self._place = next(place for place in range(len(used) + 1) if place not in used)
        self._table = table
        table[self._place] = self

    def close(self) -> None:
        """Stop what runs in its place."""
        super().close()
        self._table[self._place]._stream.close()


@saboteur("submitted-buffer-is-full", "an unread request stands still after 64 tokens")
class SubmittedBufferIsFull(SubmittedStream):
    """Keeps some tokens for its reader, and waits for it then."""

    def __init__(self, stream: ReferenceStream, record: Record) -> None:
        TokenStreamBase.__init__(self)
        self._stream, self._record, self._reason = stream, record, None
        waiting: Any = Queue(64)
        self._queue = waiting
        self._worker = threading.Thread(target=self._work, args=(waiting,), daemon=True)
        self._worker.start()

    def _work(self, queue: Any) -> None:
        try:
            for token in self._stream:
                self._put(queue, token)
            self._put(queue, StopIteration())
        except Exception as error:  # noqa: BLE001 - as every error, it comes from next()
            self._put(queue, error)

    def _put(self, queue: Any, item: object) -> None:
        while not self._stream._closed:
            try:
                queue.put(item, timeout=_WAIT)
                return
            except Full:
                continue


class UncancelledCalls(ThreadCalls):
    """Stops only what generates or classifies."""

    async def call_async(
        self, operation: str, /, *arguments: Any, **options: Any
    ) -> tuple[object, GenerateMetrics]:
        """Return the result of the method with that name; a cancelled task leaves it alone."""
        if operation not in _READING:
            return await super().call_async(operation, *arguments, **options)
        method = getattr(self._model, operation)
        return await in_thread(lambda: (method(*arguments, **options), self._model.metrics))


@saboteur(
    "reading-continues-uncancelled",
    "a cancelled task does not stop what reads rows: scores and hidden states",
)
class ReadingGoesOnUncancelled(ReferenceModel):
    """Calls in threads, of which some hear of a cancelled task."""

    calls_class = UncancelledCalls
