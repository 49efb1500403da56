"""Saboteurs of streams."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from core.types import FinishReason, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.engine import Generation
from core_conformance.reference.meter import Meter
from core_conformance.reference.stream import ReferenceStream
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
    "cancelled-behind-its-end", "close() says that a stream was cancelled, which had ended before"
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
