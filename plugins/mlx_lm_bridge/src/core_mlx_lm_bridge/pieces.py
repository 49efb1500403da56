"""From the worker's answers to tokens whose text is settled, up to the first stop string."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from core.text_stream import StopMatcher
from core.types import Token
from core_mlx_lm_bridge import protocol


class Pieces:
    """Holds tokens back while more of their text may come, or while it may begin a stop string.

    ``count`` is how many have come out.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._matcher = StopMatcher(stops) if stops else None
        self._held: deque[_Held] = deque()
        self._length = 0  # of the text so far, in characters
        self._settled = 0  # how much of it can be given out
        self.count = 0

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found: no further token will come out."""
        return self._matcher is not None and self._matcher.matched is not None

    def add(self, answer: protocol.Token) -> list[Token]:
        """Take a token. Returns those that it settles."""
        token = Token(answer.token_id, answer.token, answer.logprob)
        start, self._length = self._length, self._length + len(token.text)
        # One that is open waits for the next character, whose beginning it may be.
        self._held.append(_Held(token, start, self._length + answer.open))
        self._settled += len(self._matcher.feed(token.text) if self._matcher else token.text)
        ready = []
        while self._held and self._held[0].needed <= self._settled:
            ready.append(self._held.popleft().token)
        return self._counted(ready + (self._cut() if self.stopped else []))

    def finish(self, tail: str) -> list[Token]:
        """The generation has ended; ``tail`` is text of the last token. Returns what is held."""
        if self.stopped:
            return []
        if self._held and tail:
            token, start, needed = self._held.pop()
            self._held.append(
                _Held(Token(token.id, token.text + tail, token.logprob), start, needed)
            )
        if self._matcher is not None:
            self._settled += len(self._matcher.feed(tail)) + len(self._matcher.finish())
        return self._counted(self._rest())

    def _rest(self) -> list[Token]:
        return self._cut() if self.stopped else [held.token for held in self._held]

    def _cut(self) -> list[Token]:
        """Those that bring text before the stop string; the last of them perhaps text of it."""
        return [
            Token(token.id, token.text[: self._settled - start], token.logprob)
            for token, start, _ in self._held
            if start < self._settled
        ]

    def _counted(self, tokens: list[Token]) -> list[Token]:
        self.count += len(tokens)
        return tokens


class _Held(NamedTuple):
    """A token that waits until ``needed`` characters of the whole text are settled."""

    token: Token
    start: int
    needed: int
