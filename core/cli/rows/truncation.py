"""Texts that are longer than the context: their beginning, end or middle is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from core.cli.reading.row import InputError
from core.extensions import Tokenizing

Side = Literal["left", "right", "middle"]
_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Truncation:
    """Shortens texts so that their prompts have at most ``limit`` tokens.

    ``side`` is what goes: the beginning (left), the end (right), or what is between both (middle).
    The template around a text always stays.
    """

    side: Side
    limit: int

    def fitted(
        self, prompt: str, text: str, around: Callable[[str], str], model: Tokenizing
    ) -> str:
        """A prompt that fits. Raises `InputError` where not even one without text does."""
        if len(prompt.encode(errors="replace")) < self.limit:
            return prompt  # a token is a byte at least
        kept = ids = model.encode(text)
        for _ in range(_ROUNDS):
            excess = len(model.encode(prompt)) - self.limit
            if excess <= 0:
                return prompt
            if not kept:
                break
            # What is cut may be tokenised otherwise than before: then a little more goes.
            kept = self._shorter(ids, max(len(kept) - excess, 0))
            prompt = around(model.decode(kept).strip("\ufffd"))
        raise InputError(f"Around the text alone the prompt is longer than {self.limit} tokens.")

    def _shorter(self, ids: list[int], count: int) -> list[int]:
        if self.side == "right":
            return ids[:count]
        if self.side == "left":
            return ids[len(ids) - count :]
        return [*ids[: (count + 1) // 2], *ids[len(ids) - count // 2 :]]
