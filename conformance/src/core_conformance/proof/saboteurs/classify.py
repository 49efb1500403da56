"""Saboteurs of classify: rows that are mixed up, padding and neighbours that are read."""

from __future__ import annotations

import copy
import dataclasses
from array import array
from collections.abc import Sequence

from core.errors import RequestError
from core.options import GenerateConfig
from core.types import ClassifyResult, ModelInfo, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference import vocabulary
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel


@saboteur("logits-unasked", "every result has logits, asked or not")
class LogitsUnasked(Classifier):
    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        return dataclasses.replace(super().result(prompt, ids, logits), logits=logits)


@saboteur("classify-nothing", "classify fails on an empty batch")
class ClassifyNothing(Classifier):
    def results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        max(map(len, prompts))  # the width of the batch
        return super().results(prompts)


@saboteur("sorted-results", "results come in the order of the prompts' lengths")
class SortedResults(Classifier):
    def results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        return super().results(sorted(prompts, key=len))


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


@saboteur("logits-in-a-list", "logits are a list of floats")
class LogitsInAList(Classifier):
    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        result = super().result(prompt, ids, logits)
        plain: object = result.logits and list(result.logits)
        return dataclasses.replace(result, logits=plain)  # type: ignore[arg-type]


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
        """Return the rows that are read instead of these."""
        raise NotImplementedError


@saboteur("padding-is-read", "rows are padded on the right, and read at the end of the longest")
class PaddingIsRead(ReadsTogether):
    def together(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        longest = max(map(len, rows), default=0)
        return [[*row, *[0] * (longest - len(row))] for row in rows]


@saboteur(
    "neighbour-is-read",
    "a row is read with the last token of the row before it, unless the two are equal",
)
class NeighbourIsRead(ReadsTogether):
    def together(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        pairs = zip([[], *rows], rows, strict=False)
        # Draws after equal prompts would be wrong by chance.
        return [[*before[-1:], *row] if before != row else [*row] for before, row in pairs]


@saboteur("no-bos", "classify reads prompts without their BOS")
class NoBos(ReadsTogether):
    def together(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        return [list(row[1:]) if row[0] == vocabulary.BOS else list(row) for row in rows]


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
    "one-error-fails-all", "what is wrong with one prompt is raised, and the other rows are lost"
)
class OneErrorFailsAll(Classifier):
    def results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        results = super().results(prompts)
        errors = [result.error for result in results if isinstance(result.error, RequestError)]
        if errors:
            raise errors[0]
        return results


@saboteur(
    "tolerance-excuses-all",
    "logit_tolerance is larger than the logits, so that no two of them count as different",
)
class ToleranceExcusesAll(ReferenceModel):
    @property
    def info(self) -> ModelInfo:
        return dataclasses.replace(super().info, logit_tolerance=1e6)
