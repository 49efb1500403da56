"""Saboteurs that train wrongly, too early, or not at all."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, ClassVar, cast

from core.errors import CoreError, ModelClosedError, TrainingError
from core.training import Examples, TrainConfig, TrainingExample, TrainingRun, TrainStep
from core_conformance.proof.registry import saboteur
from core_conformance.reference.classification import Classifier
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.training import Place, Training
from core_conformance.reference.writing import write_adapter

_LONG = 90  # characters of a prompt that is worth keeping
Config = TrainConfig | None


@saboteur("training-uphill", "a step goes along the gradient, not against it")
class TrainingUphill(Training):
    """Has lost a sign."""

    def move(self, places: Sequence[Place]) -> float:
        """Goes the wrong way."""
        before = dict(self.bias)
        loss = super().move(places)
        for token, value in self.bias.items():
            self.bias[token] = 2 * before.get(token, 0.0) - value
        return loss


@saboteur("training-begins-at-the-call", "a step is taken at the call, before anybody asks for one")
class TrainingAtTheCall(ReferenceModel):
    """Warms up."""

    def train(self, examples: Examples, config: Config = None, /) -> TrainingRun:
        """Takes the first step at once."""
        steps = super().train(examples, config)
        first = next(steps)
        return TrainingRun(self._rest(first, steps), self)

    def _rest(self, first: TrainStep, steps: Iterator[TrainStep]) -> Iterator[TrainStep]:
        yield first
        yield from steps


@saboteur("adapter-saved-as-it-began", "save_adapter writes numbers of before the training")
class SavedAsItBegan(ReferenceModel):
    """Writes the numbers that it was made with, where training has made others."""

    def save_adapter(self, directory: str | os.PathLike[str], /) -> None:
        """Writes something else than what was learned."""
        super().save_adapter(directory)
        bias = self.engine.language.bias
        write_adapter(directory, {token: value / 2 for token, value in bias.items()})


@saboteur("kept-behind-a-training", "what long prompts gave is kept while the model is trained")
class KeptBehindATraining(ReferenceModel):
    """Keys what it keeps by the prompt alone."""

    class Remembers(Classifier):
        """Finds a long prompt again."""

        def result(self, prompt: str, ids: list[int], logits: array[float]) -> Any:
            """Return the result of logits that may be kept ones."""
            engine: Any = self._engine
            if not hasattr(engine, "memory"):
                engine.memory = {}
            if len(prompt) > _LONG:
                logits = array("f", engine.memory.setdefault(prompt, logits))
            return super().result(prompt, ids, logits)

    classifier_class = Remembers


@saboteur("left-training-taken-back", "a training that is left takes its steps back")
class LeftTrainingTakenBack(Training):
    """Believes in transactions."""

    def steps(self) -> Iterator[TrainStep]:
        """Undoes what it did unless it was read to its end."""
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
    """Has one generator for the process, whatever the seed."""

    _drawn: ClassVar[Iterator[int]] = count()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.first = next(self._drawn)

    def places(self, step: int) -> list[Place]:
        """Returns one example, whichever comes next."""
        return [*self.examples[(self.first + step) % len(self.examples)]]


@saboteur("training-of-nothing", "examples that teach nothing are trained in silence")
class TrainingOfNothing(ReferenceModel):
    """Skips what it cannot read."""

    def train(self, examples: Examples, config: Config = None, /) -> TrainingRun:
        """Trains, or does nothing."""
        self.check_open()
        try:
            return super().train(examples, config)
        except CoreError:
            return TrainingRun(iter(()), self)


@saboteur("training-without-run", "train() gives an iterator of steps, which has no run()")
class TrainingWithoutRun(ReferenceModel):
    """Has a generator, and returns that."""

    def train(self, examples: Examples, config: Config = None, /) -> TrainingRun:
        """Trains, step by step."""
        return cast("TrainingRun", (step for step in super().train(examples, config)))


@saboteur("training-without-dictionaries", "examples that are dictionaries are a TypeError")
class TrainingWithoutDictionaries(ReferenceModel):
    """Takes its own kind alone."""

    def train(self, examples: Examples, config: Config = None, /) -> TrainingRun:
        """Trains, if all examples are of one class."""
        rows = list(examples)
        if any(isinstance(row, dict) for row in rows):
            raise TrainingError("An example is a TrainingExample.")
        return super().train(rows, config)


@saboteur("training-of-anything", "what is not an example is passed over")
class TrainingOfAnything(ReferenceModel):
    """Learns from what it understands."""

    def train(self, examples: Examples, config: Config = None, /) -> TrainingRun:
        """Trains on the examples among all that it is given, and on their known fields."""
        rows: list[Any] = list(examples)
        known = [self._known(row) for row in rows if not isinstance(row, str)]
        return super().train(known, config)

    def _known(self, row: Any) -> Any:
        if isinstance(row, TrainingExample):
            return row
        return {name: it for name, it in row.items() if name in TrainingExample.__slots__}
