"""Saboteurs of what metrics count: tokens drawn and not given, labels' tokens, a full context."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from core.types import ClassifyResult, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel


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
