"""Training of the reference model: its adapter adds a number to each token, and is learned.

The loss is that of every learned token; the gradient by a token's number is ``p - [is it]``, summed
over the places, and a step goes against it by the learning rate times the scale.
"""

from __future__ import annotations

import json
import math
import os
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
    held_out: Sequence[Sequence[Place]] = ()
    bias: dict[int, float] = field(init=False)
    rate: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.bias = defaultdict(float, self.language.bias)

    def steps(self) -> Iterator[TrainStep]:
        """Train as it is read."""
        for step in range(1 + self.resume(), self.config.iterations + 1):
            begun = time.perf_counter()
            self.rate, places = self.learning_rate(step), self.places(step)
            loss = self.move(places)
            self.take(self.bias)
            if self._is_due(step, self.config.save_every):
                self.save(step)
            tokens = sum(len(seen) for seen, _ in places)
            yield self.report(step, loss, tokens, len(places), time.perf_counter() - begun)

    def places(self, step: int) -> list[Place]:
        """Return the places of a step: some examples, one after another."""
        count, size = len(self.examples), self.config.batch_size * self.config.accumulate
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
        rate = self.rate * self.config.adapter_scale * _PACE
        for token, value in enumerate(slope):
            self.bias[token] -= rate * value
        return loss / len(places)

    def report(
        self, step: int, loss: float, tokens: int, learned: int, seconds: float
    ) -> TrainStep:
        """Return the report of a step."""
        held_out = self.validation() if self._is_due(step, self.config.validate_every) else None
        return TrainStep(
            *(step, loss, tokens, seconds, learned, self.rate),
            validation_loss=held_out,
            steps=self.config.iterations,
        )

    def learning_rate(self, step: int) -> float:
        """Return the rate of a step: it rises, then stays, or falls along a cosine."""
        config = self.config
        if step <= config.warmup:
            return config.learning_rate * step / config.warmup
        if config.schedule == "constant":
            return config.learning_rate
        done = (step - 1 - config.warmup) / max(1, config.iterations - config.warmup)
        fall = config.learning_rate - config.final_learning_rate
        return config.final_learning_rate + fall * 0.5 * (1 + math.cos(math.pi * done))

    def validation(self) -> float | None:
        """Return the mean loss of the held-out places; None without any."""
        places = [place for places in self.held_out for place in places]
        if not places:
            return None
        language = replace(self.language, bias=self.bias)
        losses = [-log_softmax(language.logits(seen))[wanted] for seen, wanted in places]
        return math.fsum(losses) / len(places)

    def resume(self) -> int:
        """Take the last checkpoint where that is asked for; return its step."""
        if not self.config.resume or not os.path.exists(self._checkpoint):
            return 0
        with open(self._checkpoint, encoding="utf-8") as file:
            saved = json.load(file)
        self.bias.update((int(token), value) for token, value in saved["bias"].items())
        return int(saved["step"])

    def save(self, step: int) -> None:
        """Write a checkpoint, if there is a directory for it."""
        if self.config.directory is not None:
            os.makedirs(self.config.directory, exist_ok=True)
            with open(self._checkpoint, "w", encoding="utf-8") as file:
                json.dump({"step": step, "bias": self.bias}, file)

    @property
    def _checkpoint(self) -> str:
        return os.path.join(self.config.directory or "", "checkpoint.json")

    def _is_due(self, step: int, every: int) -> bool:
        return step % every == 0 or step == self.config.iterations


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
            for place in _after(prompt, completion, config.mask_prompt)
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


def _after(prompt: str, completion: str, masked: bool) -> list[Place]:
    ids = vocabulary.encode_continued(prompt, completion)
    begin = common_length(vocabulary.encode(prompt), ids) if masked else 1
    return [(tuple(ids[:end]), ids[end]) for end in range(begin, len(ids))]
