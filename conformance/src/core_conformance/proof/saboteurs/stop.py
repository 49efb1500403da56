"""Saboteurs of stop strings and stop tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from core.kit.text_stream import Detokenizer, TokenAssembler
from core.options import GenerateConfig
from core.types import FinishReason, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference import vocabulary
from core_conformance.reference.engine import Generation


class Naive(TokenAssembler):
    """Gives tokens out at once, and looks for stop strings in the text since ``reach`` tokens."""

    reach = 1
    emits = False  # the stop string, too

    def __init__(self, detokenizer: Detokenizer, stops: Iterable[str] = ()) -> None:
        super().__init__(detokenizer)
        self.stops = tuple(stops)
        self.texts: list[str] = []
        self.found = False

    @property
    def stopped(self) -> bool:
        return self.found

    def add(self, token_id: int, logprob: float | None = None) -> list[Token]:
        return [self.cut(token) for token in super().add(token_id, logprob)]

    def cut(self, token: Token) -> Token:
        before = "".join(self.texts[-self.reach + 1 :]) if self.reach > 1 else ""
        self.texts.append(token.text)
        places = [place for stop in self.stops if (place := (before + token.text).find(stop)) >= 0]
        if not places or self.found:
            return token
        self.found = True
        end = len(token.text) if self.emits else max(0, min(places) - len(before))
        return Token(token.id, token.text[:end], token.logprob)


class StopGeneration(Generation):
    """A row whose stop strings are looked for by ``assembler_class``."""

    assembler_class: type[TokenAssembler] = TokenAssembler

    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        super().__init__(ids, config, room)
        self.assembler = self.assembler_class(vocabulary.Detokenizer(), self.seen(config.stop))

    def seen(self, stops: tuple[str, ...]) -> tuple[str, ...]:
        """Return the stop strings that are looked for."""
        return stops


@saboteur("stop-within-tokens", "stop strings are looked for in each token alone")
class StopWithinTokens(StopGeneration):
    assembler_class = Naive


class LooksBack(Naive):
    """Finds what has begun in the token before, of which it has given the beginning out."""

    reach = 2


@saboteur(
    "stop-leaks", "the part of a stop string that lies in an earlier token has been given out"
)
class StopLeaks(StopGeneration):
    assembler_class = LooksBack


class TwoAtATime(TokenAssembler):
    """Holds one token back, and looks for stop strings in it and the next."""

    def __init__(self, detokenizer: Detokenizer, stops: Iterable[str] = ()) -> None:
        super().__init__(detokenizer)
        self.stops = tuple(stops)
        self.pending: list[Token] = []
        self.found = False

    @property
    def stopped(self) -> bool:
        return self.found

    def add(self, token_id: int, logprob: float | None = None) -> list[Token]:
        tokens = []
        for token in super().add(token_id, logprob):
            tokens += self.follow(token)
        return tokens

    def follow(self, token: Token) -> list[Token]:
        pair = [*self.pending, token]
        text = "".join(member.text for member in pair)
        places = [place for stop in self.stops if (place := text.find(stop)) >= 0]
        if not places:
            self.pending = [token]
            return pair[:-1]
        self.found, self.pending = True, []
        return cut(pair, min(places))

    def finish(self) -> list[Token]:
        rest, self.pending = self.pending, []
        return [] if self.found else rest + super().finish()


def cut(tokens: Sequence[Token], end: int) -> list[Token]:
    """Return the tokens up to that many characters."""
    shortened = []
    for token in tokens:
        if end > 0:
            shortened.append(Token(token.id, token.text[:end], token.logprob))
        end -= len(token.text)
    return shortened


@saboteur(
    "stop-spans-two", "a stop string is looked for in the last two tokens, and no further back"
)
class StopSpansTwo(StopGeneration):
    assembler_class = TwoAtATime


class Emits(TokenAssembler):
    """Gives the stop string out with the text before it."""

    def _cut(self) -> list[Token]:
        pending, self._held = self._held, type(self._held)()
        return [entry.token for entry in pending]


@saboteur("stop-emitted", "the text ends with the stop string")
class StopEmitted(StopGeneration):
    assembler_class = Emits


@saboteur("first-stop-only", "of several stop strings only one is looked for")
class FirstStopOnly(StopGeneration):
    def seen(self, stops: tuple[str, ...]) -> tuple[str, ...]:
        return stops[:1]


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
    "held-back-lost", "text that might have begun a stop string is lost when the generation ends"
)
class HeldBackLost(StopGeneration):
    assembler_class = Forgets


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


@saboteur("stop-tokens-ignored", "stop_tokens is not looked at")
class StopTokensIgnored(Generation):
    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        super().__init__(ids, config, room)
        self.stops -= set(config.stop_tokens)


@saboteur(
    "stop-is-length",
    'a generation that a stop string ended says "length"',
)
class StopIsLength(Generation):
    def _end(self, reason: FinishReason) -> list[Token]:
        return super()._end("length" if self.assembler.stopped else reason)
