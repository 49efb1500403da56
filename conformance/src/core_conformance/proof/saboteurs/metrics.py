"""Saboteurs of metrics."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any

from core.options import GenerateConfig
from core.types import ClassifyResult, FinishReason, GenerateMetrics, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.batch import Batch
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.stream import ReferenceStream, SubmittedStream


@saboteur("prompt-without-bos", "prompt_tokens leaves out the BOS that the model has read")
class PromptWithoutBos(Engine):
    def prefill(self, row: Generation, meter: Meter) -> None:
        super().prefill(row, meter)
        meter.prompt_tokens -= 1


@saboteur(
    "first-token-counted-twice", "generated_tokens counts the token that prefill yields once more"
)
class FirstTokenCountedTwice(Engine):
    def prefill(self, row: Generation, meter: Meter) -> None:
        super().prefill(row, meter)
        meter.generated_tokens += 1


@saboteur("overlapping-times", "the time of classify() counts as prefill and as decode")
class OverlappingTimes(ReferenceModel):
    def record(self, metrics: GenerateMetrics) -> None:
        if not metrics.decode_seconds:
            metrics = replace(metrics, decode_seconds=metrics.total_seconds)
        super().record(metrics)


@saboteur("metrics-of-the-call-before", "model.metrics are those of the stream before")
class MetricsOfTheCallBefore(ReferenceModel):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._before = threading.local()

    def stream(self, prompt: str, config: GenerateConfig) -> ReferenceStream:
        return ReferenceStream(self.engine, prompt, config, self._late)

    def _late(self, metrics: GenerateMetrics) -> None:
        self.record(getattr(self._before, "metrics", metrics))
        self._before.metrics = metrics


@saboteur("metrics-for-all", "model.metrics are those of the last call of any thread")
class MetricsForAll(ReferenceModel):
    _last = GenerateMetrics()

    @property
    def metrics(self) -> GenerateMetrics:
        return self._last

    def record(self, metrics: GenerateMetrics) -> None:
        self._last = metrics


@saboteur("stream-shows-the-model", "a stream's metrics are those of whatever the model did last")
class StreamShowsTheModel(ReferenceStream):
    @property
    def metrics(self) -> GenerateMetrics:
        record: Any = self._record
        metrics: GenerateMetrics = record.__self__.metrics
        return metrics


@saboteur(
    "submitted-is-not-recorded", "what a submitted request cost is kept for the thread that ran it"
)
class SubmittedIsNotRecorded(SubmittedStream):
    def _end(self, reason: FinishReason) -> None:
        self._reason = reason


@saboteur("closed-counts-nothing", "a stream that is closed early has cost nothing")
class ClosedCountsNothing(ReferenceStream):
    def run(self) -> Generator[Token, None, None]:
        try:
            yield from super().run()
        except GeneratorExit:
            self._metrics = GenerateMetrics()
            self._record(self._metrics)
            raise


@saboteur("batch-stream-is-not-recorded", "a batch_stream leaves the metrics of the call before it")
class BatchStreamIsNotRecorded(ReferenceModel):
    def _streamed(self, prompts: list[str], config: GenerateConfig) -> Iterator[tuple[int, Token]]:
        batch: Batch = self.batch_class(self.engine, prompts, config)
        yield from batch.tokens()
        if batch.errors:
            raise batch.errors[min(batch.errors)]


@saboteur(
    "abandoned-rows-are-not-recorded",
    "a batch_stream that is closed early leaves the metrics of the call before it",
)
class AbandonedRowsAreNotRecorded(ReferenceModel):
    def _streamed(self, prompts: list[str], config: GenerateConfig) -> Iterator[tuple[int, Token]]:
        batch: Batch = self.batch_class(self.engine, prompts, config)
        yield from batch.tokens()
        self.record(batch.meter.metrics())
        if batch.errors:
            raise batch.errors[min(batch.errors)]


@saboteur(
    "held-back-tokens-count",
    "generated_tokens counts each token when it is drawn, also those that a stop string takes",
)
class HeldBackTokensCount(Engine):
    def step(self, rows: Sequence[Generation], meter: Meter) -> list[list[Token]]:
        before = meter.generated_tokens
        tokens = super().step(rows, meter)
        ended = sum(not row.assembler.stopped and row.reason == "stop" for row in rows)
        meter.generated_tokens = before + len(rows) - ended
        return tokens


@saboteur("labels-are-prompts", "prompt_tokens counts the tokens of the labels as well")
class LabelsArePrompts(Classifier):
    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        self._meter.prompt_tokens += sum(map(len, self.config.labels))
        return super().result(prompt, ids, logits)


@saboteur(
    "a-full-context-is-read-again",
    "prompt_tokens counts the context again once it is full and rotates",
)
class AFullContextIsReadAgain(Engine):
    def step(self, rows: Sequence[Generation], meter: Meter) -> list[list[Token]]:
        limit = self.language.context_length
        meter.prompt_tokens += sum(limit for row in rows if len(row.context) == limit)
        return super().step(rows, meter)


@saboteur("scores-leave-no-metrics", "score and hidden_states leave the metrics of the call before")
class ScoresLeaveNoMetrics(ReferenceModel):
    def _record_read(self, *arguments: Any) -> None:
        pass
