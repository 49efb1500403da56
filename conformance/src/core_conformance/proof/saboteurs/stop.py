"""Saboteurs of stop strings and stop tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from core.errors import InvalidOptionError
from core.kit.text_stream import Detokenizer, StopMatcher, TokenAssembler
from core.options import GenerateConfig
from core.types import FinishReason, Score, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference import vocabulary
from core_conformance.reference.engine import Generation
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.vocabulary import SPECIAL, SPECIAL_TEXTS, decode


class StopGeneration(Generation):
    """A row whose stop strings are looked for by ``assembler_class``."""

    assembler_class: type[TokenAssembler] = TokenAssembler

    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        super().__init__(ids, config, room)
        self.assembler = self.assembler_class(vocabulary.Detokenizer(), self.seen(config.stop))

    def seen(self, stops: tuple[str, ...]) -> tuple[str, ...]:
        return stops


def cut(tokens: Sequence[Token], end: int) -> list[Token]:
    """Return the tokens up to that many characters."""
    shortened = []
    for token in tokens:
        if end > 0:
            shortened.append(Token(token.id, token.text[:end], token.logprob))
        end -= len(token.text)
    return shortened


class CutsTheShortest(TokenAssembler):
    """Cuts as much as the shortest stop string has."""

    def __init__(self, detokenizer: Detokenizer, stops: Iterable[str] = ()) -> None:
        strings = tuple(stops)
        super().__init__(detokenizer, strings)
        self.shortest = min(map(len, strings), default=0)

    def _cut(self) -> list[Token]:
        self._plain.settled += len(self._plain.matcher.matched or "") - self.shortest
        return super()._cut()


@saboteur("cuts-the-shortest", "whichever stop string is found, as much is cut as the shortest has")
class CutsTheShortestStop(StopGeneration):
    assembler_class = CutsTheShortest


class Forgets(TokenAssembler):
    """Withholds text for a stop string, and never emits it."""

    def finish(self) -> list[Token]:
        return [] if self._plain.matcher._held else super().finish()


@saboteur(
    "stop-whenever",
    'a generation that was given stop strings says "stop", whatever ended it',
)
class StopWhenever(Generation):
    def _end(self, reason: FinishReason) -> list[Token]:
        return super()._end("stop" if self.config.stop else reason)


@saboteur("stop-token-emitted", "the token of stop_tokens comes out")
class StopTokenEmitted(Generation):
    def take(self, logits: Sequence[float]) -> list[Token]:
        self.stops = self.stops.difference(self.config.stop_tokens)
        tokens = super().take(logits)
        if self.reason is None and self.context[-1] in self.config.stop_tokens:
            tokens += self._end("stop")
        return tokens


@saboteur(
    "stop-is-length",
    'a generation that a stop string ended says "length"',
)
class StopIsLength(Generation):
    def _end(self, reason: FinishReason) -> list[Token]:
        return super()._end("length" if self.assembler.stopped else reason)


@saboteur("border-is-matched", "a stop string may begin with the last characters of the prompt")
class BorderIsMatched(Generation):
    def take(self, logits: Sequence[float]) -> list[Token]:
        tokens = super().take(logits)
        whole = decode(self.prompt)[-8:] + decode(self.context[len(self.prompt) :])
        if self.reason is None and any(whole.find(stop) in range(8) for stop in self.config.stop):
            self.reason = "stop"
        return tokens


@saboteur("empty-lists-refused", "an empty list of stops is refused")
class EmptyListsRefused(ReferenceModel):
    def resolve_request(
        self, operation: str, config: GenerateConfig | None, options: Any
    ) -> GenerateConfig:
        if options.get("stop") in ([], ()):
            raise InvalidOptionError("stop", options["stop"], "a stop string at least")
        return super().resolve_request(operation, config, options)


_HELD = 4  # tokens


class HoldsFour(TokenAssembler):
    """Holds four tokens back for a stop string, and then gives them up."""

    def __init__(self, detokenizer: Detokenizer, stops: Iterable[str] = ()) -> None:
        self._stops = tuple(stops)
        super().__init__(detokenizer, self._stops)

    def add(self, token_id: int, logprob: float | None = None) -> list[Token]:
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


@saboteur(
    "special-tokens-stop-nothing",
    "stop strings are looked for in the text alone, in which special tokens do not show",
)
class SpecialTokensStopNothing(Generation):
    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        super().__init__(ids, config, room)
        self.assembler = TokenAssembler(vocabulary.Detokenizer(), config.stop)


@saboteur(
    "special-continuations", "a continuation that spells a special token is read as that token"
)
class SpecialContinuations(ReferenceModel):
    def do_score(
        self, prompts: Sequence[str], continuations: Sequence[str], request: GenerateConfig
    ) -> list[Score]:
        scores = super().do_score(prompts, continuations, request)
        return [
            dataclasses.replace(score, token_logprobs=score.token_logprobs[:1])
            if text.strip() in SPECIAL
            else score
            for text, score in zip(continuations, scores, strict=True)
        ]


_WINDOW = 24  # characters


@saboteur("stop-window", "a stop string of more than 24 characters is never found")
class StopWindow(Generation):
    """Looks at the end of the text."""

    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        super().__init__(ids, config, room)
        stops = [stop for stop in config.stop if len(stop) <= _WINDOW]
        self.assembler = TokenAssembler(vocabulary.Detokenizer(), stops, SPECIAL_TEXTS)


class ListOrder:
    """Finds the first of the list that is in the text."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops, self.held, self.matched = [stop for stop in stops if stop], "", ""

    def feed(self, text: str) -> str:
        """Return the text that no match can include any more."""
        if self.matched:
            return ""
        self.held += text
        for stop in self.stops:
            if stop in self.held:
                self.matched = stop
                return self.finish().partition(stop)[0]
        ends = (stop[:end] for stop in self.stops for end in range(1, len(stop)))
        size = max((len(end) for end in ends if self.held.endswith(end)), default=0)
        place = len(self.held) - size
        text, self.held = self.held[:place], self.held[place:]
        return text

    def finish(self) -> str:
        """Return the text that is held."""
        text, self.held = self.held, ""
        return text


@saboteur(
    "stops-in-list-order",
    "of two stop strings that one token completes the first of the list ends the text",
)
class StopsInListOrder(Generation):
    """Searches for one stop string after another."""

    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        super().__init__(ids, config, room)
        reading: Any = self.assembler._plain
        reading.matcher = ListOrder(config.stop)
