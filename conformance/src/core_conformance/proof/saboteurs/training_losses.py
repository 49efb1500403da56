"""Saboteurs that learn other tokens than they are asked to, or by another rate."""

from __future__ import annotations

import sys
from dataclasses import replace

from core.training import (
    Examples,
    TrainConfig,
    TrainingExample,
    TrainingRun,
    checked_examples,
)
from core_conformance.proof.registry import saboteur
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.training import Place, Training

Config = TrainConfig | None


class Reads(ReferenceModel):
    """Trains with other options than those that it is given."""

    def train(self, examples: Examples, config: Config = None, /) -> TrainingRun:
        """Trains as it likes."""
        return super().train(examples, self.read(config or TrainConfig()))

    def read(self, config: TrainConfig) -> TrainConfig:
        """Return the options that it takes."""
        raise NotImplementedError


@saboteur(
    "training-labels-behind-the-text",
    "a label is learned after its text, whatever the template says",
)
class LabelsBehindTheText(Reads):
    """Has its own idea of a prompt."""

    def read(self, config: TrainConfig) -> TrainConfig:
        """Reads without the template."""
        return replace(config, template="{text}")


@saboteur("training-always-masked", "prompts are masked, also where they are to be learned")
class AlwaysMasked(Reads):
    """Has a mask that is never taken off."""

    def read(self, config: TrainConfig) -> TrainConfig:
        """Reads as always masked."""
        return replace(config, mask_prompt=True)


@saboteur("training-last-turn-alone", "of a conversation the last answer alone is learned")
class LastTurnAlone(ReferenceModel):
    """Sees a conversation as a prompt and a completion."""

    def train(self, examples: Examples, config: Config = None, /) -> TrainingRun:
        """Trains, with each conversation in two parts."""
        return super().train([*map(self._in_two, checked_examples(examples))], config)

    def _in_two(self, example: TrainingExample) -> TrainingExample:
        if not example.messages:
            return example
        prompt = self.rendered(example.messages[:-1])
        return TrainingExample(prompt=prompt, completion=example.messages[-1].content)


@saboteur("training-first-batch-again", "every step learns the same examples, the first ones")
class FirstBatchAgain(Training):
    """Forgets which step it is."""

    def places(self, step: int) -> list[Place]:
        """Returns those of the first step."""
        return super().places(1)


@saboteur("training-of-any-length", "max_tokens is not looked at")
class OfAnyLength(Reads):
    """Takes what fits the context."""

    def read(self, config: TrainConfig) -> TrainConfig:
        """Reads without a limit."""
        return replace(config, max_tokens=sys.maxsize)


@saboteur("training-without-its-scale", "what an adapter adds is not multiplied by its scale")
class WithoutItsScale(Reads):
    """Adds it as it is."""

    def read(self, config: TrainConfig) -> TrainConfig:
        """Always of scale 1."""
        return replace(config, scale=1.0, alpha=None)


@saboteur(
    "training-with-other-defaults",
    "a training without a config has other options than TrainConfig()",
)
class OtherDefaults(ReferenceModel):
    """Knows better."""

    def train(self, examples: Examples, config: Config = None, /) -> TrainingRun:
        """Learns whole texts by default."""
        return super().train(examples, config or TrainConfig(mask_prompt=False))
