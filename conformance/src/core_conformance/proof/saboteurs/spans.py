"""Saboteurs of stop strings: those at the answer's beginning, and those over many tokens."""

from __future__ import annotations

from collections.abc import Iterable

from core.kit.text_stream import Detokenizer, StopMatcher, TokenAssembler
from core.types import Token
from core_conformance.proof.registry import saboteur
from core_conformance.proof.saboteurs.stop import StopGeneration

_HELD = 4  # tokens


class AfterTheFirst(TokenAssembler):
    """Gives the first token out before it looks for stop strings."""

    def __init__(self, detokenizer: Detokenizer, stops: Iterable[str] = ()) -> None:
        super().__init__(detokenizer)
        self._later: tuple[str, ...] | None = tuple(stops)

    def add(self, token_id: int, logprob: float | None = None) -> list[Token]:
        """Return the tokens whose text cannot change any more."""
        tokens = super().add(token_id, logprob)
        if self._later is not None:
            self._plain.matcher, self._later = StopMatcher(self._later), None
        return tokens


@saboteur("first-token-is-out", "the first token is given out before stop strings are looked for")
class FirstTokenIsOut(StopGeneration):
    assembler_class = AfterTheFirst


class HoldsFour(TokenAssembler):
    """Holds four tokens back for a stop string, and then gives them up."""

    def __init__(self, detokenizer: Detokenizer, stops: Iterable[str] = ()) -> None:
        self._stops = tuple(stops)
        super().__init__(detokenizer, self._stops)

    def add(self, token_id: int, logprob: float | None = None) -> list[Token]:
        """Return the tokens whose text is settled, or held for too long."""
        tokens = super().add(token_id, logprob)
        if len(self._held) > _HELD:
            tokens += self.release()
            self._plain.matcher = StopMatcher(self._stops)
        return tokens


@saboteur("stop-spans-four", "a stop string over more than four tokens is not found")
class StopSpansFour(StopGeneration):
    assembler_class = HoldsFour


@saboteur("sixteen-stops", "of many stop strings sixteen are looked for")
class SixteenStops(StopGeneration):
    def seen(self, stops: tuple[str, ...]) -> tuple[str, ...]:
        return stops[:16]
