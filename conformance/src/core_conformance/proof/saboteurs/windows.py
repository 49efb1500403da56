"""Saboteurs that forget what left the context, or take cold for frozen."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace

from core.options import GenerateConfig
from core.types import Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.engine import Engine, Generation

_COLD = 0.01


class InWindow(Generation):
    """Penalises the tokens in the context alone."""

    window = 0

    def take(self, logits: Sequence[float]) -> list[Token]:
        """Draw a token."""
        whole, self.context = self.context, self.context[-self.window :]
        size = len(self.context)
        tokens = super().take(logits)
        self.context = whole + self.context[size:]
        return tokens


@saboteur(
    "penalty-of-the-context", "where the context rotates, repeat_penalty forgets what left it"
)
class PenaltyOfTheContext(Engine):
    """Counts the tokens that it holds."""

    generation_class = InWindow

    def generation(self, prompt: str, config: GenerateConfig) -> Generation:
        """Make a row for a prompt."""
        row = super().generation(prompt, config)
        if isinstance(row, InWindow):
            row.window = self.language.context_length
        return row


@saboteur("cold-is-greedy", "a temperature below 0.01 is taken for 0, so that no filter applies")
class ColdIsGreedy(Generation):
    """Divides by no small number."""

    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        cold = config.temperature < _COLD
        super().__init__(ids, replace(config, temperature=0.0) if cold else config, room)


@saboteur(
    "rotation-drops-early",
    'with context_overflow="rotate" the oldest positions are dropped when half the context is full',
)
class RotationDropsEarly(Engine):
    def forward(self, rows: Sequence[Sequence[int]]) -> list[array[float]]:
        most = self.language.context_length
        half = most // 2 if self._rotates else most
        return super().forward([row[-half:] for row in rows])
