"""Saboteurs of classify and classify_iter."""

from __future__ import annotations

import copy
import dataclasses
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from core.options import GenerateConfig
from core.types import ClassifyResult, ModelInfo, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel


@saboteur("classify-nothing", "classify fails on an empty batch")
class ClassifyNothing(Classifier):
    def results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        max(map(len, prompts))  # the width of the batch
        return super().results(prompts)


@saboteur("second-micro-batch", "from the second micro-batch on, rows are one place off")
class SecondMicroBatch(Classifier):
    def results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        results = super().results(prompts)
        for batch in list(self.micro_batches(prompts))[1:]:
            first, *rest = [results[row] for row in batch]
            for row, result in zip(batch, [*rest, first], strict=True):
                results[row] = result
        return results


@saboteur("second-best", "the greedy token is the second best")
class SecondBest(Classifier):
    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        best = logits.index(max(logits))
        rest = array("f", logits)
        rest[best] = -1e9
        second = super().result(prompt, ids, rest)
        result = super().result(prompt, ids, logits)
        return (
            result if self.config.temperature else dataclasses.replace(result, token=second.token)
        )


@saboteur("filtered-logits", "logits are those after the filters")
class FilteredLogits(Classifier):
    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        result = super().result(prompt, ids, logits)
        if result.logits is None or not self.config.top_k:
            return result
        least = sorted(logits)[-self.config.top_k]
        filtered = array("f", (value if value >= least else float("-inf") for value in logits))
        return dataclasses.replace(result, logits=filtered)


class ReadsTogether(Classifier):
    """Reads micro-batches whose rows are first changed by ``together``."""

    def __init__(self, engine: Engine, config: GenerateConfig, meter: Meter) -> None:
        own = copy.copy(engine)
        own.forward = lambda rows: engine.forward(self.together(rows))  # type: ignore[method-assign]
        super().__init__(own, config, meter)

    def together(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        raise NotImplementedError


@saboteur("padding-is-read", "rows are padded on the right, and read at the end of the longest")
class PaddingIsRead(ReadsTogether):
    def together(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        longest = max(map(len, rows), default=0)
        return [[*row, *[0] * (longest - len(row))] for row in rows]


@saboteur(
    "off-by-one-position",
    "decoding forgets a position: from the second token on it sees one token less",
)
class OffByOnePosition(Engine):
    def step(self, rows: Sequence[Generation], meter: Meter) -> list[list[Token]]:
        for row in rows:
            if row.drawn == 1:
                del row.context[len(row.prompt) - 1]
        return super().step(rows, meter)


@saboteur(
    "tolerance-excuses-all",
    "logit_tolerance is larger than the logits, so that no two of them count as different",
)
class ToleranceExcusesAll(ReferenceModel):
    @property
    def info(self) -> ModelInfo:
        return dataclasses.replace(super().info, logit_tolerance=1e6)


@saboteur("stream-collects", "classify_iter reads all of its input before it answers")
class StreamCollects(ReferenceModel):
    def classify_iter(
        self, prompts: Iterable[str], *config: Any, **options: Any
    ) -> Iterator[ClassifyResult]:
        return super().classify_iter(list(prompts), *config, **options)


_SEEN = 64  # characters


class Once(Classifier):
    """A classifier that reads prompts of one ``key`` once in a call."""

    def key(self, prompt: str) -> str:
        return prompt

    def results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        several = {self.key(prompt): prompt for prompt in prompts}
        computed = dict(zip(several, super().results([*several.values()]), strict=True))
        return [computed[self.key(prompt)] for prompt in prompts]


@saboteur("equal-as-far-as-seen", "prompts that begin alike are taken for equal ones")
class EqualAsFarAsSeen(Once):
    def key(self, prompt: str) -> str:
        return prompt[:_SEEN]
