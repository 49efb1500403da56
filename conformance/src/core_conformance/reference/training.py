"""Training of the reference model: its adapter adds a number to each token, and is learned.

The loss is that of every learned token; the gradient by a token's number is ``p - [is it]``, summed
over the places, and a step goes against it by the learning rate times the scale.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.errors import InvalidOptionError, LabelError, TrainingError
from core.kit.chat import RenderedPrompt
from core.kit.labels import common_length, label_texts
from core.training import TrainConfig, TrainingExample, TrainStep
from core.types import Message
from core_conformance.reference import vocabulary
from core_conformance.reference.language import Language, log_softmax

TARGETS = ("all-linear", "bias")
_PACE = 5.0

Place = tuple[tuple[int, ...], int]  # the tokens before, and the token that is learned
Bias = Mapping[int, float]
Render = Callable[[Sequence[Message]], RenderedPrompt]


@dataclass
class Training:
    """The examples' places, and the bias so far, which ``take`` receives after each step."""

    language: Language
    examples: Sequence[Sequence[Place]]
    config: TrainConfig
    take: Callable[[Bias], None]
    bias: dict[int, float] = field(init=False)

    def __post_init__(self) -> None:
        self.bias = defaultdict(float, self.language.bias)

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
        """Return the places of a step: some examples, one after another."""
        count, size = len(self.examples), self.config.batch_size
        rows = [self.examples[(size * (step - 1) + row) % count] for row in range(size)]
        return [place for row in rows for place in row]

    def move(self, places: Sequence[Place]) -> float:
        """Take one step; return the mean loss before it."""
        loss, slope = 0.0, [0.0] * vocabulary.VOCAB_SIZE
        language = replace(self.language, bias=self.bias)
        for seen, wanted in places:
            logprobs = log_softmax(language.logits(seen))
            loss -= logprobs[wanted]
            for token, logprob in enumerate(logprobs):
                slope[token] += math.exp(logprob) - (token == wanted)
        rate = self.config.learning_rate * self.config.adapter_scale * _PACE
        for token, value in enumerate(slope):
            self.bias[token] -= rate * value
        return loss / len(places)

    def report(
        self, step: int, loss: float, tokens: int, learned: int, seconds: float
    ) -> TrainStep:
        """Return the report of a step."""
        rate, steps = self.config.learning_rate, self.config.iterations
        return TrainStep(step, loss, tokens, seconds, learned, rate, steps=steps)


def places_of(
    examples: Sequence[TrainingExample], config: TrainConfig, context_length: int, render: Render
) -> list[list[Place]]:
    """Return each example's places. Raises `TrainingError`, `LabelError` and `OptionError`."""
    for target in config.targets:
        if target not in TARGETS:
            raise InvalidOptionError("targets", target, f"one of {', '.join(TARGETS)}")
    if not examples:
        raise TrainingError("Training needs an example. Give at least one.")
    labels = {example.label for example in examples if example.label is not None}
    if len(labels.union(config.labels)) == 1:
        raise LabelError(f"All examples have the label {labels}. Add examples of another.")

    most, learned = min(config.max_tokens, context_length), []
    for example in examples:
        places = [
            place
            for prompt, completion in _spelled(example, config, render)
            for place in _behind(prompt, completion, config.mask_prompt)
        ]
        if not places or len(places[-1][0]) >= most:
            raise TrainingError(f"Nothing can be learned from {example!r:.80}. Leave it out.")
        learned.append(places)
    return learned


def _spelled(
    example: TrainingExample, config: TrainConfig, render: Render
) -> Iterator[tuple[str, str]]:
    """Yield the prompts of an example, each with what is learned after it."""
    if example.label is not None:
        prompt = config.template.replace("{text}", example.text)
        [completion] = label_texts(prompt, [example.label], config.label_prefix)
        yield prompt, completion
    elif example.messages:
        for turn, message in enumerate(example.messages):
            if message.role == "assistant":
                yield render(example.messages[:turn]), message.content
    else:
        yield example.prompt, example.completion or example.text


def _behind(prompt: str, completion: str, masked: bool) -> list[Place]:
    ids = vocabulary.encode_continued(prompt, completion)
    begin = common_length(vocabulary.encode(prompt), ids) if masked else 1
    return [(tuple(ids[:end]), ids[end]) for end in range(begin, len(ids))]
