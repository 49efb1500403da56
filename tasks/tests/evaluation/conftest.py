"""A model of written-down answers that scores as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

import core
from core.testing import FakeModel


class Scorer(FakeModel):
    """A fake whose continuations are as likely as a function says."""

    def __init__(self, likely: Callable[[str, str], float], answers: object = "") -> None:
        super().__init__(answers)  # type: ignore[arg-type]
        self.likely = likely
        self.batches: list[int] = []

    def score(
        self,
        prompts: Sequence[str],
        continuations: Sequence[str],
        config: core.GenerateConfig | None = None,
        /,
        **options: object,
    ) -> list[core.Score]:
        self.batches.append(len(prompts))
        pairs = zip(prompts, continuations, strict=True)
        return [core.Score(self.likely(prompt, end)) for prompt, end in pairs]


@pytest.fixture
def scorer() -> type[Scorer]:
    return Scorer
