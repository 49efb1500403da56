"""Saboteurs that compute once what comes several times, and once too seldom."""

from __future__ import annotations

from collections.abc import Sequence

from core.types import ClassifyResult
from core_conformance.proof.registry import saboteur
from core_conformance.reference.classification import Classifier

_SEEN = 64  # characters


class Once(Classifier):
    """A classifier that reads prompts of one ``key`` once in a call."""

    def key(self, prompt: str) -> str:
        """Prompts with the same key get the same result."""
        return prompt

    def results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        several = {self.key(prompt): prompt for prompt in prompts}
        computed = dict(zip(several, super().results([*several.values()]), strict=True))
        return [computed[self.key(prompt)] for prompt in prompts]


@saboteur("equal-as-far-as-seen", "prompts that begin alike are taken for equal ones")
class EqualAsFarAsSeen(Once):
    def key(self, prompt: str) -> str:
        return prompt[:_SEEN]


@saboteur("drawn-once", "a prompt that comes several times is drawn once for all of them")
class DrawnOnce(Once):
    """Does so without a seed, too."""
