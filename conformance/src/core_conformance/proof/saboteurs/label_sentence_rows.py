"""Saboteurs of label sentences in rows, in other forms of classify, and at another time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from core.options import GenerateConfig
from core.types import ClassifyResult, HiddenResult
from core_conformance.proof.registry import saboteur
from core_conformance.reference.sentences import (
    SentenceClassifier,
    SentenceModel,
)

_MOMENT = 0.02  # seconds


@saboteur("sentence-sorted", "texts get the results of others, by length")
class SentenceSorted(SentenceClassifier):
    def results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        return super().results(sorted(prompts, key=len))


@saboteur("sentence-many-rows", "from the hundredth text on, results are one off")
class SentenceManyRows(SentenceClassifier):
    def results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        results = super().results(prompts)
        return [*results[:100], *results[101:], *results[100:101]]


@saboteur("sentence-errors-guess", "a text that fails has a label all the same")
class SentenceErrorsGuess(SentenceClassifier):
    def read(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        label = self.config.labels[0]
        return [
            replace(result, label=label) if result.error else result
            for result in super().read(prompts)
        ]


@saboteur("sentence-cached", "embeddings of labels are kept by label, whatever the sentence is")
class SentenceCached(SentenceClassifier):
    def compared(self, ids: Sequence[int]) -> ClassifyResult:
        cache = vars(self._engine).setdefault("cache", {})
        vars(self)["embedded"] = cache.setdefault(self.config.labels, self.embedded)
        return super().compared(ids)


@saboteur("sentence-of-the-stream", "classify_iter does not look at label_sentence")
class SentenceOfTheStream(SentenceModel):
    def _classified(
        self, prompts: Iterator[str], config: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        plain = GenerateConfig(labels=config.labels)
        return super()._classified(prompts, replace(config, label_sentence=plain.label_sentence))


@saboteur("sentence-awaited", "an awaited call loses its label_sentence")
class SentenceAwaited(SentenceModel):
    async def call_async(self, operation: str, /, *arguments: object, **options: Any) -> Any:
        options.pop("label_sentence", None)
        return await super().call_async(operation, *arguments, **options)


@saboteur("sentence-shared", "calls of several threads share their labels")
class SentenceShared(SentenceModel):
    def do_classify(self, prompts: Sequence[str], request: GenerateConfig) -> list[ClassifyResult]:
        self.request = request
        time.sleep(_MOMENT)
        return super().do_classify(prompts, self.request)


@saboteur("sentence-ends", "the hidden state of a text is that of its end")
class SentenceEnds(SentenceModel):
    def do_hidden_states(
        self, prompts: Sequence[str], request: GenerateConfig, layers: Sequence[int]
    ) -> list[HiddenResult]:
        return super().do_hidden_states([prompt[-1:] for prompt in prompts], request, layers)
