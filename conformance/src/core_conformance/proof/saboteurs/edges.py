"""Saboteurs that are right but at the edges of an option."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from random import Random
from typing import Any

from core.errors import PromptTooLongError, RequestError
from core.kit.base import RequestClock
from core.options import GenerateConfig
from core.types import ClassifyResult, FinishReason, Score
from core_conformance.proof.registry import saboteur
from core_conformance.reference.batch import Batch
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.stream import ReferenceStream

_ROOM = 40  # characters


@saboteur("closed-is-stop", "a stream that was closed says that it is complete")
class ClosedIsStop(ReferenceStream):
    @property
    def finish_reason(self) -> FinishReason | None:
        return "stop" if self._closed and self._reason else self._reason


@saboteur("timeout-is-length", "a stream whose time is up says length")
class TimeoutIsLength(ReferenceStream):
    @property
    def finish_reason(self) -> FinishReason | None:
        return "length" if self._reason == "error" else self._reason


@saboteur("timeout-from-the-call", "the timeout of a stream runs from its call, before it is read")
class TimeoutFromTheCall(ReferenceStream):
    def __init__(self, engine: Engine, prompt: str, config: GenerateConfig, record: Any) -> None:
        super().__init__(engine, prompt, config, record)
        self._called = RequestClock(config)

    def _check(self, row: Generation) -> None:
        super()._check(row)
        self._called.check()


@saboteur("empty-is-certain", "an empty continuation scores 0, which is certainty")
class EmptyIsCertain(ReferenceModel):
    def score(
        self, prompts: Sequence[str], continuations: Sequence[str], *config: Any, **options: Any
    ) -> list[Score]:
        scores = super().score(prompts, continuations, *config, **options)
        return [
            score if text else Score() for text, score in zip(continuations, scores, strict=True)
        ]


@saboteur(
    "labels-without-room-are-closed",
    "a label without room after its prompt is an error of another kind",
)
class LabelsWithoutRoomAreClosed(Classifier):
    def check_labels(self, length: int) -> None:
        """Raises what says nothing about lengths."""
        if length > self._engine.language.context_length:
            raise RequestError("The context is full.")


@saboteur(
    "labels-without-room-are-none",
    "a row without room for a label has neither a label nor an error",
)
class LabelsWithoutRoomAreNone(Classifier):
    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        try:
            return super().result(prompt, ids, logits)
        except PromptTooLongError:
            return ClassifyResult()


@saboteur("too-long-for-all", "a label without room after one prompt fails every row")
class TooLongForAll(Classifier):
    def results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        results = super().results(prompts)
        error = next((r.error for r in results if isinstance(r.error, PromptTooLongError)), None)
        if not self.config.labels or error is None:
            return results
        return [ClassifyResult(error=error)] * len(prompts)


@saboteur("scores-cut-left", "what does not fit the context is scored with its beginning cut off")
class ScoresCutLeft(ReferenceModel):
    def score(
        self, prompts: Sequence[str], continuations: Sequence[str], *config: Any, **options: Any
    ) -> list[Score]:
        whole = super().score(prompts, continuations, *config, **options)
        heads, tails = ([text[-_ROOM:] for text in texts] for texts in (prompts, continuations))
        cut = super().score(heads, tails, *config, **options)
        return [
            other if isinstance(one.error, PromptTooLongError) else one
            for one, other in zip(whole, cut, strict=True)
        ]


@saboteur("seed-of-ones", "the seed 2**32 - 1 stands for none")
class SeedOfOnes(Generation):
    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        super().__init__(ids, config, room)
        if config.seed == 2**32 - 1:
            self.random = Random()


@saboteur("failed-rows-count", "a row that was refused counts as a token read")
class FailedRowsCount(Batch):
    def __init__(self, engine: Engine, prompts: Sequence[str], config: GenerateConfig) -> None:
        super().__init__(engine, prompts, config)
        self.meter.prompt_tokens += len(self.errors)


@saboteur("labels-lost-behind-errors", "after a row that failed, no labels are looked at")
class LabelsLostBehindErrors(Classifier):
    def read(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        results = super().read(prompts)
        if not any(result.error for result in results):
            return results
        return [ClassifyResult(result.token, error=result.error) for result in results]
