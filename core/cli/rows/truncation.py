"""Texts that are longer than the context: their beginning, end or middle is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from core.cli.reading.row import InputError
from core.extensions import Tokenizing

Side = Literal["left", "right", "middle"]
_GUESS = 8
"""Characters that a token has at most, as a rule: more are looked at where these are too few."""
_SPARE = 512
"""Of so many tokens one may stay unused: to search for the last character would cost more."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """Shortens texts so that their prompts have at most ``limit`` tokens.

    ``side`` is what goes: the beginning (left), the end (right), or what is between both (middle).
    What stays are characters of the text as they were. The template around it always stays.
    """

    side: Side
    limit: int

    def fitted(
        self, prompt: str, text: str, around: Callable[[str], str], model: Tokenizing
    ) -> str:
        """A prompt that fits. Raises `InputError` where not even one character of the text does."""
        if len(prompt.encode(errors="replace")) < self.limit:
            return prompt  # a token is a byte at least

        # Look at as much of the text as is too much: of a very long one that is a small part.
        most = self.limit * _GUESS
        while most < len(text):
            over = len(model.encode(around(self._part(text, most))))
            if over > self.limit:
                break
            most *= 2
        else:
            most, over = len(text), len(model.encode(prompt))
            if over <= self.limit:
                return prompt
        return self._longest(text, around, model, most, over)

    def _longest(
        self,
        text: str,
        around: Callable[[str], str],
        model: Tokenizing,
        most: int,
        over: int,
    ) -> str:
        """The prompt of as many characters as fit; ``most`` do not, with ``over`` tokens."""
        best, least = around(self._part(text, 1)), 1
        under = len(model.encode(best))
        if under > self.limit:
            raise InputError(
                f"With one character of the text alone the prompt has {under} tokens, and "
                f"{self.limit} fit. Shorten what is around it, or give the model a larger "
                "--context-len."
            )

        # By the tokens at both ends of the range; by its middle where that gets nowhere.
        for number in range(most.bit_length() * 2):
            if self.limit - under <= self.limit // _SPARE or most - least <= 1:
                break
            share = (self.limit - under) / (over - under) if number % 3 < 2 else 0.5
            count = min(max(least + int((most - least) * share), least + 1), most - 1)
            tried = around(self._part(text, count))
            size = len(model.encode(tried))
            if size <= self.limit:
                best, least, under = tried, count, size
            else:
                most, over = count, size
        return best

    def _part(self, text: str, count: int) -> str:
        if self.side == "right":
            return text[:count]
        if self.side == "left":
            return text[len(text) - count :]
        return text[: (count + 1) // 2] + text[len(text) - count // 2 :]
