"""Saboteurs that keep no books of what streams."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from core.options import GenerateConfig
from core.types import ClassifyResult, FinishReason, GenerateMetrics, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.batch import Batch
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.stream import ReferenceStream, SubmittedStream


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


@saboteur("classify-iter-counts-blocks", "the metrics of classify_iter are those of its last block")
class ClassifyIterCountsBlocks(ReferenceModel):
    def _classified(
        self, prompts: Iterator[str], config: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        for prompt in prompts:
            yield from super()._classified(iter([prompt]), config)


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
