"""Saboteurs that count wrong, or hand out the count of something else."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from core.options import GenerateConfig
from core.types import GenerateMetrics
from core_conformance.proof.registry import saboteur
from core_conformance.reference.batch import Batch
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.stream import ReferenceStream


@saboteur("prompt-without-bos", "prompt_tokens leaves out the BOS that the model has read")
class PromptWithoutBos(Engine):
    """Counts the tokens of a prompt before the tokenizer adds the BOS."""

    def prefill(self, row: Generation, meter: Meter) -> None:
        """Reads a prompt and counts one token too few."""
        super().prefill(row, meter)
        meter.prompt_tokens -= 1


@saboteur("last-row-counts", "prompt_tokens of a batch is that of its last row")
class LastRowCounts(Batch):
    """Sets the count at each row, where it has to add to it."""

    def _prefilled(self, row: int) -> list[int]:
        self.meter.prompt_tokens = 0
        return super()._prefilled(row)


@saboteur(
    "first-token-counted-twice", "generated_tokens counts the token that prefill yields once more"
)
class FirstTokenCountedTwice(Engine):
    """Counts the first token in prefill, and in decode once more."""

    def prefill(self, row: Generation, meter: Meter) -> None:
        """Reads a prompt and counts one token too many."""
        super().prefill(row, meter)
        meter.generated_tokens += 1


@saboteur("overlapping-times", "the time of classify() counts as prefill and as decode")
class OverlappingTimes(ReferenceModel):
    """Measures prefill and decode from one start."""

    def record(self, metrics: GenerateMetrics) -> None:
        """Records metrics, with the total as decode time if that is missing."""
        if not metrics.decode_seconds:
            metrics = replace(metrics, decode_seconds=metrics.total_seconds)
        super().record(metrics)


@saboteur("time-since-the-load", "the total of classify() is the time since the model was loaded")
class TimeSinceTheLoad(ReferenceModel):
    """Has one clock for all calls, which shows days on some machines."""

    def record(self, metrics: GenerateMetrics) -> None:
        """Records metrics of a call that only reads with a total that no caller has waited for."""
        if not metrics.decode_seconds:
            metrics = replace(metrics, total_seconds=metrics.total_seconds + 3600.0)
        super().record(metrics)


@saboteur(
    "read-tokens-counted-as-given", "classify() counts the tokens of its prompts as generated"
)
class ReadTokensCountedAsGiven(ReferenceModel):
    """Adds to the wrong counter."""

    def record(self, metrics: GenerateMetrics) -> None:
        """Records metrics; without decode seconds, they are those of a call that only reads."""
        if not metrics.decode_seconds:
            metrics = replace(metrics, generated_tokens=metrics.prompt_tokens)
        super().record(metrics)


@saboteur("metrics-of-the-call-before", "model.metrics are those of the stream before")
class MetricsOfTheCallBefore(ReferenceModel):
    """Publishes a stream's metrics before they are final."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._before = threading.local()

    def stream(self, prompt: str, config: GenerateConfig) -> ReferenceStream:
        """Makes a stream that records the metrics of the one before."""
        return ReferenceStream(self.engine, prompt, config, self._late)

    def _late(self, metrics: GenerateMetrics) -> None:
        self.record(getattr(self._before, "metrics", metrics))
        self._before.metrics = metrics


@saboteur("metrics-for-all", "model.metrics are those of the last call of any thread")
class MetricsForAll(ReferenceModel):
    """Keeps one attribute of metrics for all threads."""

    _last = GenerateMetrics()

    @property
    def metrics(self) -> GenerateMetrics:
        """The last metrics, for whichever thread asks."""
        return self._last

    def record(self, metrics: GenerateMetrics) -> None:
        """Records metrics, whichever thread they are of."""
        self._last = metrics


@saboteur("stream-shows-the-model", "a stream's metrics are those of whatever the model did last")
class StreamShowsTheModel(ReferenceStream):
    """Asks the model for its metrics."""

    @property
    def metrics(self) -> GenerateMetrics:
        """The metrics of the model's last call, at the moment of asking."""
        record: Any = self._record
        metrics: GenerateMetrics = record.__self__.metrics
        return metrics
