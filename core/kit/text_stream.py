"""The text of sampled tokens, which is emitted once and never changed.

A token's text waits while a character of it is incomplete, and while it may be the start of a stop
string. A backend supplies the bytes of its tokens (`StreamDetokenizer`), its own `Detokenizer`, or
the texts themselves (`TokenBuffer`); the rest is the same for all.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple, Protocol

from core.types import Token

TokenBytes = Callable[[int, bool], bytes | None]
"""Function that returns a token's UTF-8 bytes, possibly part of a character; None without text.

The flag is True if no text precedes it, where some tokenizers strip a space. Any id may occur.
"""

_CHARACTER_BYTES = 4  # UTF-8's longest
_PER_BYTE = {0xDC00 + byte: "\ufffd" for byte in range(0x80, 0x100)}  # what surrogateescape makes


class Detokenizer(Protocol):
    """Converter of the token ids of one generation to text, in order."""

    @property
    def incomplete(self) -> bool:
        """True if the last token ended inside a character: a later one, or `finish`, has it."""
        ...

    def add(self, token_id: int) -> str:
        """Return the text that this token completes.

        "" while it is the beginning of a character.
        """
        ...

    def finish(self) -> str:
        """Return the text that is left.

        U+FFFD for the bytes of an incomplete character, else "".
        """
        ...


class StreamDetokenizer:
    """A `Detokenizer` that continues a prompt: one generation's state.

    Invalid UTF-8 becomes U+FFFD: one for each run that may have been a character, or with
    ``per_byte`` one for each byte, like tokenizers with byte fallback.
    """

    def __init__(
        self, token_bytes: TokenBytes, prompt: Sequence[int] = (), per_byte: bool = False
    ) -> None:
        self._bytes = token_bytes
        errors = "surrogateescape" if per_byte else "replace"
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)
        self._first = True

        # A prompt of token ids may end inside a character.
        spoken = (id for id in reversed(prompt) if token_bytes(id, False) is not None)
        for token_id in reversed(list(islice(spoken, _CHARACTER_BYTES))):
            self.add(token_id)

    @property
    def incomplete(self) -> bool:
        """True if the last token ended inside a character."""
        return bool(self._decoder.getstate()[0])

    def add(self, token_id: int) -> str:
        """Return the text that this token completes; "" for a token without text."""
        data = self._bytes(token_id, self._first)
        if data is None:
            return ""
        self._first = False
        return self._decoder.decode(data).translate(_PER_BYTE)

    def finish(self) -> str:
        """Return the text that is left.

        U+FFFD for the bytes of an incomplete character, else "".
        """
        return self._decoder.decode(b"", final=True).translate(_PER_BYTE)


class StopMatcher:
    """Search for the first of several stop strings in text that arrives in pieces.

    The match that begins first wins, and the longest of these. However the text is cut into pieces,
    the result equals a search in the complete text. Takes time linear in the text.

    ``matched``: the stop string that was found; None before that.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._trie = _StopTrie(stops)
        self._node = 0
        self._held = ""  # text that was fed but not returned yet
        self._candidate = ""  # a stop string that was found, while an earlier one is possible
        self._start = 0  # of the candidate, in the held text
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        """Read on. Returns the text that no match can include any more; "" after a match."""
        if self.matched is not None:
            return ""
        if self._trie.empty:
            return text

        pending = len(self._held)
        self._held += text
        for end, char in enumerate(text, pending + 1):
            self._node = self._trie.step(self._node, char)
            self._consider(self._trie.found[self._node], end)
            if self._candidate and end - self._open() > self._start:
                return self._cut()
        return self._release(len(self._held) - self._open())

    def finish(self) -> str:
        """End the text. Returns the held text, up to a match if there is one."""
        return self._cut() if self._candidate else self._release(len(self._held))

    def _open(self) -> int:
        """Return the number of the last characters that may still grow into a stop string."""
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


class TokenBuffer:
    """Buffer that holds the `core.Token`s of one generation until their text is settled.

    The texts of the returned tokens are the generated text, up to the first stop string. ``shown``:
    the stop strings that contain the text of a special token. They are also searched for in the
    text with special tokens shown; the special tokens themselves are returned without text.
    """

    def __init__(self, stops: Iterable[str] = (), shown: Iterable[str] = ()) -> None:
        self._plain, shown = _Reading(stops), tuple(shown)
        self._shown = _Reading(shown) if shown else self._plain
        self._held: deque[_Held] = deque()

    @property
    def stopped(self) -> bool:
        """True if a stop string was found: no further token will come out, but for `release`."""
        return bool(self._plain.matcher.matched or self._shown.matcher.matched)

    def hold(self, token: Token, incomplete: bool = False, shown: str = "") -> list[Token]:
        """Take a token; ``incomplete``: it ends inside a character that a later one completes.

        ``shown``: the text of a special token, which has none in the generated text. Returns the
        tokens whose text is settled by it.
        """
        if self.stopped:
            return []
        plain = both = self._plain.feed(token.text)
        if self._shown is not self._plain:
            both = self._shown.feed(shown or token.text)
        if incomplete:  # with the character that it begins: that may belong to a stop string
            plain = _Span(plain.start, plain.needed + 1)
        self._held.append(_Held(token, plain, both))
        return self._ready()

    def release(self, tail: str = "") -> list[Token]:
        """End the generation; ``tail`` is text of the last token.

        Returns all held tokens, without the text that a stop string cuts off.
        """
        if self._held and tail:  # the token that left a character incomplete is among them
            self._held.append(self._held.pop().with_tail(tail))

        ready: list[Token] = []
        if not self.stopped:
            for reading in {self._plain, self._shown}:  # they may be one
                reading.feed(tail)
                reading.finish()
            ready = self._ready()
        ready += [piece.token for piece in self._held]  # an incomplete character that got no tail
        self._held.clear()
        return ready

    def _ready(self) -> list[Token]:
        tokens = []
        while self._held and self._is_settled(self._held[0]):
            tokens.append(self._held.popleft().token)
        if self.stopped:
            self._plain.finish()  # of two complete ones, the one that begins first wins
            self._shown.finish()
            tokens += self._cut()
        return tokens

    def _is_settled(self, piece: _Held) -> bool:
        return (
            piece.plain.needed <= self._plain.settled and piece.shown.needed <= self._shown.settled
        )

    def _cut(self) -> list[Token]:
        """Drop the held tokens, and return the part of them before the stop string.

        Before a special token, an incomplete character stays held until its tail comes.
        """
        plain, shown, tokens = self._plain, self._shown, list[Token]()
        pending, self._held = self._held, deque()
        for entry in pending:
            room = min(plain.settled - entry.plain.start, shown.settled - entry.shown.start)
            if self._is_settled(entry):
                tokens.append(entry.token)
            elif not plain.matcher.matched and entry.shown.needed <= shown.settled:
                self._held.append(entry)
            elif room > 0:
                tokens.append(replace(entry.token, text=entry.token.text[:room]))
        return tokens


class TokenAssembler(TokenBuffer):
    """Assembler of one generation's `core.Token`s from ids, each as soon as its text is settled.

    A character that is split over tokens belongs entirely to the last of them. ``special`` are the
    texts of special tokens by their ids: a stop string may hold them.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        stops: Iterable[str] = (),
        special: Mapping[int, str] | None = None,
    ) -> None:
        texts, stops = special or {}, tuple(stops)
        self._special = {
            id: text for id, text in texts.items() if text and any(text in stop for stop in stops)
        }
        shown = [stop for stop in stops if any(text in stop for text in self._special.values())]
        super().__init__(stops, shown)
        self._detokenizer = detokenizer

    def add(self, token_id: int, logprob: float | None = None) -> list[Token]:
        """Take a sampled token. Returns the tokens whose text is settled by it."""
        if self.stopped:
            return []
        text = self._detokenizer.add(token_id)
        token = Token(token_id, text, logprob)
        return self.hold(token, self._detokenizer.incomplete, self._special.get(token_id, ""))

    def finish(self) -> list[Token]:
        """End the generation. Returns the tokens that were held back."""
        return self.release(self._detokenizer.finish())


class _Span(NamedTuple):
    """Start of a token's text in a reading, and the length that must be settled."""

    start: int
    needed: int


class _Held(NamedTuple):
    """A token that waits until enough of both readings is settled."""

    token: Token
    plain: _Span
    shown: _Span

    def with_tail(self, tail: str) -> _Held:
        """Return the token with the end of its text; it then waits for that text alone."""
        token = replace(self.token, text=self.token.text + tail)
        plain = self.plain._replace(needed=self.plain.start + len(token.text))
        return _Held(token, plain, self.shown._replace(needed=self.shown.needed + len(tail)))


class _Reading:
    """A reading of a generation's text: its stop strings, its length, and the settled length."""

    def __init__(self, stops: Iterable[str]) -> None:
        self.matcher = StopMatcher(stops)
        self.length = 0  # of the text so far, in characters
        self.settled = 0  # the part of it that can be returned

    def feed(self, text: str) -> _Span:
        """Read on, and return where that text is."""
        start, self.length = self.length, self.length + len(text)
        self.settled += len(self.matcher.feed(text))
        return _Span(start, self.length)

    def finish(self) -> None:
        """End the text: the held text is settled, up to a stop string if there is one."""
        self.settled += len(self.matcher.finish())


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
        self.empty = len(self._children) == 1

    def step(self, node: int, char: str) -> int:
        """Return the node after one more character."""
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
        # Breadth first: the node to fall back to is shorter, so it is finished before this one.
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
