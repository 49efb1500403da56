"""Prompts of a given number of tokens that share no prefix, so that no cache helps."""

from __future__ import annotations

import random

from core.extensions import Tokenizing

_WORDS = (
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "group",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
)

_TRIES = 64


class Prompts:
    """A source of texts of random words, of an exact number of tokens with a tokenizer.

    Without one, a word counts as one token (``exact`` is False). Equal seeds draw equal texts.
    """

    def __init__(self, model: object, seed: int = 0) -> None:
        self._model = model if isinstance(model, Tokenizing) else None
        self._draw = random.Random(seed)
        self.exact = self._model is not None

    def text(self, tokens: int) -> str:
        """Return a text of this many tokens, or one word if that is longer."""
        words = [self._word()]
        while self._length(words) < tokens:
            words += [self._word() for _ in range(max(1, (tokens - self._length(words)) // 3))]
        return self._fitted(words, tokens)

    def texts(self, count: int, tokens: int) -> list[str]:
        """Return several texts, all different."""
        unique: dict[str, None] = {}
        for _ in range(50 * count):
            unique.setdefault(self.text(tokens))
            if len(unique) == count:
                break
        return [*unique]

    def length(self, text: str) -> int:
        """Return the tokens of a text, or its words without a tokenizer."""
        return len(text.split()) if self._model is None else len(self._model.encode(text))

    def _length(self, words: list[str]) -> int:
        return self.length(" ".join(words))

    def _fitted(self, words: list[str], tokens: int) -> str:
        """Remove words until there are too few tokens, then add endings up to ``tokens``."""
        while len(words) > 1 and self._length(words) > tokens:
            words.pop()
        text = " ".join(words)
        for _ in range(_TRIES):
            missing = tokens - self.length(text)
            if missing <= 0:
                break
            ends = [f" {self._word()}" for _ in range(4)] + [f" {letter}" for letter in "aio"]
            longer = [text + end for end in (*ends, *"aeinst")]
            fitting = [
                candidate
                for candidate in longer
                if self.length(text) < self.length(candidate) <= tokens
            ]
            if not fitting:
                break
            text = max(fitting, key=self.length)
        return text

    def _word(self) -> str:
        return self._draw.choice(_WORDS)
