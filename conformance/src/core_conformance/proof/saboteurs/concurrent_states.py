"""Saboteurs whose open streams share what each should have of its own."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from core.types import FinishReason, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.meter import Meter
from core_conformance.reference.stream import ReferenceStream


@saboteur(
    "penalty-of-all-streams",
    "open streams share what repeat_penalty has seen; one that begins resets it",
    kills={"concurrency.in-turn"},
)
class PenaltyOfAllStreams(ReferenceStream):
    """Has one list of tokens seen."""

    def tokens(self) -> Generator[Token, None, FinishReason]:
        """Run the whole request."""
        self._meter = Meter()
        row: Any = self.engine.generation(self.prompt, self.config)
        shared = self.engine.__dict__
        shared["seen"] = list(row.prompt)
        take = row.take

        def take_with_all(logits: Sequence[float]) -> list[Token]:
            own, row.context = row.context, shared["seen"]
            tokens: list[Token] = take(logits)
            row.context = own
            own += shared["seen"][-1:]
            return tokens

        row.take = take_with_all
        yield from self.generate(row, self._meter)
        return row.reason or "error"
