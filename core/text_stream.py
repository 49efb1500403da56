"""From sampled tokens to text that is given out once and never taken back.

A token's text waits while a character of it is incomplete, and while it may turn out to be the
beginning of a stop string. Backends supply the `Detokenizer`; the rest is the same for all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from core.types import Token


class Detokenizer(Protocol):
    """Turns the token ids of one generation into text, in order."""

    @property
    def incomplete(self) -> bool:
        """Whether the last token ended inside a character: a later one, or `finish`, has it."""
        ...

    def add(self, token_id: int) -> str:
        """The text that this token completes; "" while it is the beginning of a character."""
        ...

    def finish(self) -> str:
        """What is left: U+FFFD for the bytes of an incomplete character, else ""."""
        ...


class StopMatcher:
    """Finds the first of several stop strings in text that arrives in pieces.

    The match that begins first wins, of those the longest: however the text is cut into pieces,
    the result is that of a search in the whole text. Takes time linear in the text.

    ``matched``: the stop string that was found; None before that.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._trie = _StopTrie(stops)
        self._node = 0
        self._held = ""  # read, and not given out
        self._candidate = ""  # a stop string that was found, while an earlier one is possible
        self._start = 0  # of the candidate, in what is held
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        """Read on. Returns the text that no match can include any more; "" after a match."""
        if self.matched is not None:
            return ""
        held = len(self._held)
        self._held += text
        for end, char in enumerate(text, held + 1):
            self._node = self._trie.step(self._node, char)
            self._consider(self._trie.found[self._node], end)
            if self._candidate and end - self._open() > self._start:
                return self._cut()
        return self._release(len(self._held) - self._open())

    def finish(self) -> str:
        """The text has ended: returns what was held back, up to a match if there is one."""
        return self._cut() if self._candidate else self._release(len(self._held))

    def _open(self) -> int:
        """How many of the last characters may still grow into a stop string."""
        return self._trie.open[self._node]

    def _consider(self, stop: str, end: int) -> None:
        # At the same start a later one is the longer one.
        if stop and (not self._candidate or end - len(stop) <= self._start):
            self._candidate, self._start = stop, end - len(stop)

    def _cut(self) -> str:
        self.matched, self._candidate = self._candidate, ""
        text, self._held = self._held[: self._start], ""
        return text

    def _release(self, end: int) -> str:
        text, self._held = self._held[:end], self._held[end:]
        self._start -= end
        return text


class TokenAssembler:
    """Makes the `core.Token`s of one generation, each as soon as its text is settled.

    A character that is split over tokens belongs, whole, to the last of them. The texts of all
    tokens are the generated text, up to the first stop string.
    """

    def __init__(self, detokenizer: Detokenizer, stops: Iterable[str] = ()) -> None:
        self._detokenizer = detokenizer
        self._matcher = StopMatcher(stops)
        self._held: deque[_Held] = deque()
        self._length = 0  # of the text so far, in characters
        self._settled = 0  # how much of it can be given out

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found: no further token will come out."""
        return self._matcher.matched is not None

    def add(self, token_id: int, logprob: float | None = None) -> list[Token]:
        """Take a sampled token. Returns the tokens whose text is settled by it."""
        if self.stopped:
            return []
        text = self._detokenizer.add(token_id)
        self._hold(token_id, logprob, text)
        self._settled += len(self._matcher.feed(text))
        return self._ready()

    def finish(self) -> list[Token]:
        """The generation has ended. Returns the tokens that were held back."""
        if self.stopped:
            return []
        tail = self._detokenizer.finish()
        if self._held:  # the token that left a character incomplete is among them
            last = self._held.pop()
            self._length -= len(last.text)
            self._hold(last.id, last.logprob, last.text + tail)
        self._settled += len(self._matcher.feed(tail)) + len(self._matcher.finish())
        return self._ready()

    def _hold(self, token_id: int, logprob: float | None, text: str) -> None:
        start, self._length = self._length, self._length + len(text)
        # With the character that it begins: that may belong to a stop string.
        needed = self._length + self._detokenizer.incomplete
        self._held.append(_Held(token_id, logprob, text, start, needed))

    def _ready(self) -> list[Token]:
        tokens = []
        while self._held and self._held[0].needed <= self._settled:
            token = self._held.popleft()
            tokens.append(Token(token.id, token.text, token.logprob))
        if self.stopped:
            tokens += self._cut()
        return tokens

    def _cut(self) -> list[Token]:
        """The token that brings text before the stop string and also text of it."""
        held, self._held = self._held, deque()
        return [
            Token(token.id, token.text[: self._settled - token.start], token.logprob)
            for token in held
            if token.start < self._settled
        ]


class _Held(NamedTuple):
    """A token that waits until ``needed`` characters of the whole text are settled."""

    id: int
    logprob: float | None
    text: str
    start: int
    needed: int


class _StopTrie:
    """The trie of the stop strings with failure links: Aho and Corasick, CACM 18(6), 1975.

    Node 0 is the root. A node stands for the longest end of the text that begins a stop string.
    ``found[node]`` is the longest stop string that ends there, or ""; ``open[node]`` is the length
    of the longest end of the text that begins a longer stop string.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._children: list[dict[str, int]] = [{}]
        self._failure = [0]
        self.found = [""]
        self.open = [0]
        for stop in stops:
            self._insert(stop)
        self._link()

    def step(self, node: int, char: str) -> int:
        """The node after one more character."""
        while node and char not in self._children[node]:
            node = self._failure[node]
        return self._children[node].get(char, 0)

    def _insert(self, stop: str) -> None:
        node = 0
        for depth, char in enumerate(stop, 1):
            if char not in self._children[node]:
                self._children[node][char] = len(self._children)
                self._children.append({})
                self._failure.append(0)
                self.found.append("")
                self.open.append(depth)
            node = self._children[node][char]
        self.found[node] = stop

    def _link(self) -> None:
        # Breadth first: what a node falls back to is shorter, and finished before it.
        queue = deque(self._children[0].values())
        while queue:
            node = queue.popleft()
            shorter = self._failure[node]
            self.found[node] = self.found[node] or self.found[shorter]
            if not self._children[node]:
                self.open[node] = self.open[shorter]
            for char, child in self._children[node].items():
                self._failure[child] = self.step(shorter, char)
                queue.append(child)
