"""Saboteurs of a training's steps: options that are taken and passed over."""

from __future__ import annotations

from core_conformance.proof.registry import saboteur
from core_conformance.reference.training import Place, Training


@saboteur("no-warm-up", "the rate is the same at every step")
class NoWarmUp(Training):
    def learning_rate(self, step: int) -> float:
        return self.config.learning_rate


@saboteur("accumulates-nothing", "accumulate is passed over")
class AccumulatesNothing(Training):
    def places(self, step: int) -> list[Place]:
        places = super().places(step)
        return places[: len(places) // self.config.accumulate]


@saboteur("validates-at-the-end-alone", "the held-out examples are measured at the last step alone")
class ValidatesAtTheEndAlone(Training):
    def _is_due(self, step: int, every: int) -> bool:
        return step == self.config.iterations or every == self.config.save_every


@saboteur("begins-at-zero", "every training begins with a new adapter")
class BeginsAtZero(Training):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.bias.clear()


@saboteur("resumes-at-one", "a checkpoint is written and never read")
class ResumesAtOne(Training):
    def resume(self) -> int:
        return 0
