"""Truncates texts that are longer than the context, at the beginning, end or middle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from core.extensions import Tokenizing
from core_cli.reading.row import InputError

Side = Literal["left", "right", "middle"]
_GUESS = 8
"""Usual maximum of characters per token; more are used if these are too few."""
_SPARE = 512
"""One of this many tokens may stay unused; a search for the last character would cost more."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """A limit for prompts: texts are cut so that prompts have at most ``limit`` tokens.

    ``side`` is the part to drop: the beginning (left), the end (right) or the middle. The rest of
    the text is unchanged, and the template is always kept.
    """

    side: Side
    limit: int

    def fitted(
        self, prompt: str, text: str, around: Callable[[str], str], model: Tokenizing
    ) -> str:
        """Return a prompt that fits.

        Raises `InputError` if not even one character of the text fits.
        """
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
        """Return the prompt with as many characters as fit; ``most`` make ``over`` tokens."""
        best, least = around(self._part(text, 1)), 1
        under = len(model.encode(best))
        if under > self.limit:
            raise InputError(
                f"The prompt is too long even with one character of the text: {under} tokens; "
                f"{self.limit} fit. Shorten the template, or set a larger --context-len."
            )

        # Interpolate between both ends of the range; bisect if that makes no progress.
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
