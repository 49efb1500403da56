"""Saboteurs whose training leaves a state in the model, or is reported otherwise than it was."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace

from core.kit.base import RequestClock
from core.kit.support import checked_pairs
from core.options import GenerateConfig
from core.training import Examples, TrainConfig, TrainingRun, TrainStep
from core.types import Score
from core_conformance.proof.registry import saboteur
from core_conformance.reference.classification import score
from core_conformance.reference.engine import Engine
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.training import Training


@saboteur(
    "scores-from-before-training",
    "score() answers what it was asked before with the weights of that time",
)
class ScoresFromBeforeTraining(ReferenceModel):
    """Keeps the scores of pairs."""

    scores: dict[tuple[str, str], Score] | None = None

    def do_score(
        self, prompts: Sequence[str], continuations: Sequence[str], request: GenerateConfig
    ) -> list[Score]:
        """Score each continuation once."""
        clock, scores = RequestClock(request), self.scores if self.scores is not None else {}
        self.scores = scores
        pairs = list(zip(*checked_pairs("score", prompts, continuations), strict=True))
        for pair in pairs:
            if pair not in scores or scores[pair].error is not None:
                scores[pair] = score(self.engine, clock, *pair)
        return [scores[pair] for pair in pairs]


class DroppingEngine(Engine):
    """Drops some of the logits, others in each pass, once it is told to."""

    dropout, calls = 0.0, 0

    def forward(self, rows: Sequence[Sequence[int]]) -> list[array[float]]:
        """Return the logits after each row's tokens, some of them smaller."""
        results = super().forward(rows)
        for logits in results if self.dropout else ():
            self.calls += 1
            for token in range(self.calls % 7, len(logits), 7):
                logits[token] *= 1 - self.dropout
        return results


@saboteur(
    "dropout-after-training", "after a training with dropout inputs are dropped in every call"
)
class DropoutAfterTraining(ReferenceModel):
    """Leaves the model in the mode in which it was trained."""

    engine_class = DroppingEngine

    def train(self, examples: Examples, config: TrainConfig | None = None, /) -> TrainingRun:
        """Train with dropout, from now on."""
        run = super().train(examples, config)
        if isinstance(self.engine, DroppingEngine):
            self.engine.dropout = config.dropout if config else 0.0
        return run


@saboteur("padding-counted", "a step counts each of its examples as long as the longest")
class PaddingCounted(Training):
    """Counts the tokens of the array that a batch is."""

    def report(
        self, step: int, loss: float, tokens: int, learned: int, seconds: float
    ) -> TrainStep:
        """Return the report of a step, with the tokens of its array."""
        count, size = len(self.examples), self.config.batch_size
        rows = [self.examples[(size * (step - 1) + row) % count] for row in range(size)]
        longest = max(sum(len(seen) for seen, _ in row) for row in rows)
        return super().report(step, loss, longest * size, learned, seconds)


@saboteur(
    "labels-after-a-space", "a training spells labels after a space, whatever label_prefix is"
)
class LabelsAfterASpace(ReferenceModel):
    """Knows one way to write an example."""

    def train(self, examples: Examples, config: TrainConfig | None = None, /) -> TrainingRun:
        """Train on labels after a space."""
        return super().train(examples, config and replace(config, label_prefix=" "))
