"""Saboteurs of streams: of tokens, their number, and how a stream ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from core.options import GenerateConfig
from core.types import FinishReason, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.meter import Meter
from core_conformance.reference.stream import Record, ReferenceStream
from core_conformance.reference.vocabulary import EOS

EAGER = {"streaming.lazy", "cancel.closed-stream", "lifecycle.open-stream"}
ANEW = {"streaming.end", "streaming.text"}
OVER = {"streaming.end", "streaming.lazy", "streaming.to-dict"}
LONGER = {
    "streaming.max-tokens",
    "batch.results",
    "classify.first-token",
    "classify.first-token-seeded",
    "concurrency.parallel-slots",
    "context.rotate",
    "sampling.logprobs-of-logits",
}


@saboteur("logprobs-unasked", "every token has a logprob, asked or not", {"streaming.tokens"})
class LogprobsUnasked(Generation):
    def take(self, logits: Sequence[float]) -> list[Token]:
        return [
            dataclasses.replace(token, logprob=-1.0 if token.logprob is None else token.logprob)
            for token in super().take(logits)
        ]


@saboteur(
    "hot-is-eos",
    "weights underflow at high temperatures, and what is drawn then is always EOS",
    {"streaming.yields", "sampling.seeds-differ"},
)
class HotIsEos(Generation):
    def take(self, logits: Sequence[float]) -> list[Token]:
        if self.config.temperature < 15:
            return super().take(logits)
        return super().take([0.0 if i == EOS else -1e9 for i in range(len(logits))])


@saboteur(
    "eager",
    "generate draws its first token at the call",
    EAGER | {"streaming.reasons", "streaming.text-fails", "streaming.to-dict"},
)
class Eager(ReferenceStream):
    def __init__(self, engine: Engine, prompt: str, config: GenerateConfig, record: Record) -> None:
        super().__init__(engine, prompt, config, record)
        self.early = next(self._tokens, None)

    def next_token(self) -> Token:
        token, self.early = self.early, None
        return token or super().next_token()

    def close(self) -> None:
        self.early = None
        super().close()


@saboteur("one-too-many", "max_tokens=n gives n + 1 tokens", LONGER)
class OneTooMany(Generation):
    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        super().__init__(ids, config, room)
        self.limit += 1


@saboteur(
    "always-stop",
    'a generation that max_tokens ended says "stop"',
    {"streaming.max-tokens", "batch.results", "context.length", "context.rotate"},
)
class AlwaysStop(Generation):
    def _end(self, reason: FinishReason) -> list[Token]:
        return super()._end("stop")


@saboteur("begins-anew", "next() after the end begins the stream again", ANEW)
class BeginsAnew(ReferenceStream):
    def next_token(self) -> Token:
        try:
            return super().next_token()
        except StopIteration:
            self._tokens = self.run()
            raise


@saboteur("over-before", "finish_reason is there before the end", OVER | {"streaming.reasons"})
class OverBefore(ReferenceStream):
    @property
    def finish_reason(self) -> FinishReason | None:
        return self._reason or "stop"


@saboteur(
    "close-ignored",
    "close() does nothing",
    {"streaming.close", "cancel.closed-stream", "streaming.reasons"},
)
class CloseIgnored(ReferenceStream):
    def close(self) -> None:
        """Does nothing."""


@saboteur(
    "leftovers",
    "a request that ends before its time leaves its last token to be read before the next prompt",
    {
        "streaming.close",
        "cancel.closed-stream",
        "cancel.works-after",
        "chat.second-turn",
        "history.speech",
    },
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
    "cancelled-behind-its-end",
    "close() says that a stream was cancelled, which had ended before",
    kills={"streaming.close-behind"},
)
class CancelledBehindItsEnd(ReferenceStream):
    """Sets the reason where it closes, without a look at the one that is there."""

    def close(self) -> None:
        ended = self._reason in ("stop", "length")
        super().close()
        if ended:
            self._reason = "cancelled"


@saboteur(
    "close-unheard-in-line",
    "a stream that waits in line does not hear that another thread closes it",
    kills={"streaming.close-elsewhere"},
)
class CloseUnheardInLine(ReferenceStream):
    """Looks at the model and at its cancel while it waits, and not at itself."""

    def _check(self, row: Generation) -> None:
        self.engine.check(row)
