"""Saboteurs of training."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar

from core.errors import ModelClosedError
from core.kit.base import RequestClock
from core.kit.support import checked_pairs
from core.options import GenerateConfig
from core.training import (
    Examples,
    TrainConfig,
    TrainingExample,
    TrainingRun,
    TrainStep,
    checked_examples,
)
from core.types import Score
from core_conformance.proof.registry import saboteur
from core_conformance.reference.classification import Classifier, score
from core_conformance.reference.engine import Engine
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.training import Place, Training

_LONG = 90  # characters of a prompt that is worth keeping
Config = TrainConfig | None


@saboteur("training-uphill", "a step goes along the gradient, not against it")
class TrainingUphill(Training):
    def move(self, places: Sequence[Place]) -> float:
        before = dict(self.bias)
        loss = super().move(places)
        for token, value in self.bias.items():
            self.bias[token] = 2 * before.get(token, 0.0) - value
        return loss


@saboteur("training-begins-at-the-call", "a step is taken at the call, before anybody asks for one")
class TrainingAtTheCall(ReferenceModel):
    def train(self, examples: Examples, config: Config = None, /) -> TrainingRun:
        steps = super().train(examples, config)
        first = next(steps)
        return TrainingRun(self._rest(first, steps), self)

    def _rest(self, first: TrainStep, steps: Iterator[TrainStep]) -> Iterator[TrainStep]:
        yield first
        yield from steps


@saboteur("kept-after-a-training", "what long prompts gave is kept while the model is trained")
class KeptBehindATraining(ReferenceModel):
    class Remembers(Classifier):
        """Finds a long prompt again."""

        def result(self, prompt: str, ids: list[int], logits: array[float]) -> Any:
            engine: Any = self._engine
            if not hasattr(engine, "memory"):
                engine.memory = {}
            if len(prompt) > _LONG:
                logits = array("f", engine.memory.setdefault(prompt, logits))
            return super().result(prompt, ids, logits)

    classifier_class = Remembers


@saboteur("left-training-taken-back", "a training that is left takes its steps back")
class LeftTrainingTakenBack(Training):
    def steps(self) -> Iterator[TrainStep]:
        before: Mapping[int, float] = dict(self.bias)
        try:
            yield from super().steps()
        except GeneratorExit:
            with suppress(ModelClosedError):
                self.take(before)
            raise


@saboteur(
    "training-in-any-order", "what a step learns depends on how often the program has trained"
)
class TrainingInAnyOrder(Training):
    _drawn: ClassVar[Iterator[int]] = count()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.first = next(self._drawn)

    def places(self, step: int) -> list[Place]:
        return [*self.examples[(self.first + step) % len(self.examples)]]


@saboteur("training-of-anything", "what is not an example is passed over")
class TrainingOfAnything(ReferenceModel):
    def train(self, examples: Examples, config: Config = None, /) -> TrainingRun:
        rows: list[Any] = list(examples)
        known = [self._known(row) for row in rows if not isinstance(row, str)]
        return super().train(known, config)

    def _known(self, row: Any) -> Any:
        if isinstance(row, TrainingExample):
            return row
        return {name: it for name, it in row.items() if name in TrainingExample.__slots__}


class Reads(ReferenceModel):
    """Trains with other options than those that it is given."""

    def train(self, examples: Examples, config: Config = None, /) -> TrainingRun:
        return super().train(examples, self.read(config or TrainConfig()))

    def read(self, config: TrainConfig) -> TrainConfig:
        raise NotImplementedError


@saboteur(
    "training-labels-after-the-text",
    "a label is learned after its text, whatever the template says",
)
class LabelsBehindTheText(Reads):
    def read(self, config: TrainConfig) -> TrainConfig:
        return replace(config, template="{text}")


@saboteur("training-always-masked", "prompts are masked, also where they are to be learned")
class AlwaysMasked(Reads):
    def read(self, config: TrainConfig) -> TrainConfig:
        return replace(config, mask_prompt=True)


@saboteur("training-last-turn-alone", "of a conversation the last answer alone is learned")
class LastTurnAlone(ReferenceModel):
    def train(self, examples: Examples, config: Config = None, /) -> TrainingRun:
        return super().train([*map(self._in_two, checked_examples(examples))], config)

    def _in_two(self, example: TrainingExample) -> TrainingExample:
        if not example.messages:
            return example
        prompt = self.rendered(example.messages[:-1])
        return TrainingExample(prompt=prompt, completion=example.messages[-1].content)


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
