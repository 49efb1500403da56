"""Saboteurs whose draws are not those of the distribution: each looks right in a few draws."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from random import Random
from typing import Any

from core.options import GenerateConfig
from core.types import ClassifyResult
from core_conformance.proof.registry import saboteur
from core_conformance.proof.saboteurs.sampling import ClassifiesOtherwise, OtherOptions
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Generation


@saboteur("hot-is-two", "classify takes temperatures above 2 for 2")
class HotIsTwo(ClassifiesOtherwise):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"temperature": min(config.temperature, 2.0)}


@saboteur(
    "batches-draw-from-forty",
    "rows of a batch are drawn from the 40 best tokens where no top_k is given",
)
class BatchesDrawFromForty(OtherOptions):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {} if config.top_k or config.temperature == 0 else {"top_k": 40}


@saboteur(
    "last-ids-are-never-drawn",
    "at a high temperature a running sum of low precision is full before the last ids",
)
class LastIdsAreNeverDrawn(Classifier):
    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        if self.config.temperature < 50 or self.config.seed is not None:
            return super().result(prompt, ids, logits)
        full = len(logits) * 3 // 4
        return super().result(
            prompt, ids, array("f", [*logits[:full], *[-1e38] * (len(logits) - full)])
        )


class Coarse(Random):
    """Random numbers of three bits."""

    def random(self) -> float:
        return math.floor(super().random() * 8) / 8


@saboteur("seeds-draw-coarsely", "with a seed, the random numbers have a few bits")
class SeedsDrawCoarsely(Generation):
    def take(self, logits: Sequence[float]) -> Any:
        if self.config.seed is not None and not self.drawn:
            self.random = Coarse(self.config.seed)
        return super().take(logits)


@saboteur("filtered-is-not-warm", "what a filter leaves is drawn at temperature 1")
class FilteredIsNotWarm(ClassifiesOtherwise):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        filtered = config.top_k > 1 or config.min_p > 0 or config.top_p < 1
        return {"temperature": 1.0} if filtered and config.temperature else {}
