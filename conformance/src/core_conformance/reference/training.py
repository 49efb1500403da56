"""Training of the reference model: its adapter adds a number to each token, and is learned.

The loss is that of every learned token; the gradient by a token's number is ``p - [is it]``, summed
over the places, and a step goes along it by the learning rate times the scale.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from core.errors import InvalidOptionError, LabelError, TrainingError
from core.training import TrainConfig, TrainingExample, TrainStep
from core_conformance.reference import vocabulary
from core_conformance.reference.language import Language, log_softmax

TARGETS = ("all-linear", "bias")
_LONGEST = 10.0  # of a gradient: it is shortened to 1, whatever it was

Place = tuple[tuple[int, ...], int]  # what stands in front, and the token that is learned
Bias = Mapping[int, float]


@dataclass
class Training:
    """The examples' places, and the numbers as they are. ``take`` is told them behind each step."""

    language: Language
    examples: Sequence[Sequence[Place]]
    config: TrainConfig
    take: Callable[[Bias], None]
    bias: dict[int, float] = field(init=False)

    def __post_init__(self) -> None:
        self.bias = dict(self.language.bias)

    def steps(self) -> Iterator[TrainStep]:
        """Train as it is read."""
        for step in range(1, self.config.iterations + 1):
            begun = time.perf_counter()
            places = self.places(step)
            loss = self.move(places)
            self.take(self.bias)
            tokens = sum(len(seen) for seen, _ in places)
            yield self.report(step, loss, tokens, len(places), time.perf_counter() - begun)

    def places(self, step: int) -> list[Place]:
        """What a step learns: some examples, one behind another."""
        count, size = len(self.examples), self.config.batch_size
        rows = [self.examples[(size * (step - 1) + row) % count] for row in range(size)]
        return [place for row in rows for place in row]

    def move(self, places: Sequence[Place]) -> float:
        """Go one step; the mean loss before it."""
        loss, slope = 0.0, dict[int, float]()
        language = Language(self.language.context_length, self.bias)
        for seen, wanted in places:
            logprobs = log_softmax(language.logits(seen))
            loss -= logprobs[wanted]
            for token, logprob in enumerate(logprobs):
                slope[token] = slope.get(token, 0.0) + math.exp(logprob) - (token == wanted)
        length = math.sqrt(math.fsum(value * value for value in slope.values())) or 1.0
        rate = self.config.learning_rate * self.config.adapter_scale * _LONGEST / length
        for token, value in slope.items():
            self.bias[token] = self.bias.get(token, 0.0) - rate * value
        return loss / len(places)

    def report(
        self, step: int, loss: float, tokens: int, learned: int, seconds: float
    ) -> TrainStep:
        """What is told of a step."""
        rate, steps = self.config.learning_rate, self.config.iterations
        return TrainStep(step, loss, tokens, seconds, learned, rate, steps=steps)


def places_of(
    examples: Sequence[TrainingExample], config: TrainConfig, context_length: int
) -> list[list[Place]]:
    """What each example teaches. Raises `TrainingError`, `LabelError` and `OptionError`."""
    for target in config.targets:
        if target not in TARGETS:
            raise InvalidOptionError("targets", target, f"one of {', '.join(TARGETS)}")
    if not examples:
        raise TrainingError("There is no example to learn from. Give at least one.")
    labels = {example.label for example in examples if example.label is not None}
    if len(labels) == 1:
        raise LabelError(f"All examples have the label {labels}. Add examples of another.")
    return [_places(example, config, context_length) for example in examples]


def _places(example: TrainingExample, config: TrainConfig, context_length: int) -> list[Place]:
    prompt, completion = example.prompt, example.completion
    if example.label is not None:
        prompt = config.template.replace("{text}", example.text)
        completion = config.label_prefix + example.label
    elif example.text:
        completion = example.text
    elif example.messages:
        completion = example.messages[-1].content
    start = len(vocabulary.encode(prompt))
    ids = vocabulary.encode_continued(prompt, completion)
    if not completion or len(ids) > context_length:
        raise TrainingError(f"Nothing can be learned from {example!r:.80}. Leave it out.")
    return [(tuple(ids[:end]), ids[end]) for end in range(min(start, len(ids) - 1), len(ids))]
