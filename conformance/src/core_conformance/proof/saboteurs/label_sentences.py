"""Saboteurs of label sentences."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from core.errors import PromptTooLongError
from core.options import LABEL_SENTENCE, GenerateConfig
from core.protocols import Capability
from core.types import ClassifyResult, HiddenResult, ModelInfo, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.sentences import (
    SentenceClassifier,
    SentenceModel,
    Sentences,
)

_FEW, _SHORT = 16, 32  # labels, and tokens


@saboteur("sentence-logprobs", "backend declares logprobs")
class SentenceLogprobs(Sentences):
    everything = Sentences.everything | {Capability.LOGPROBS}


@saboteur("sentence-token", "results of label sentences have a token, and the scores as logprobs")
class SentenceToken(SentenceClassifier):
    def compared(self, ids: Sequence[int]) -> ClassifyResult:
        result = super().compared(ids)
        logprobs = {label: math.log(share) for label, share in (result.probabilities or {}).items()}
        return replace(result, token=Token(0, ""), logprobs=logprobs)


@saboteur("sentence-sigmoids", "probabilities of label sentences are each a sigmoid")
class SentenceSigmoids(SentenceClassifier):
    def compared(self, ids: Sequence[int]) -> ClassifyResult:
        result = super().compared(ids)
        shares = {
            label: share / (1 + share) for label, share in (result.probabilities or {}).items()
        }
        best, second = sorted([*shares.values(), 0.0])[-1:-3:-1]
        return replace(result, probabilities=shares, margin=best - second)


@saboteur(
    "sentence-tolerance", "logit_tolerance of a model of label sentences is as large as its scores"
)
class SentenceTolerance(SentenceModel):
    @property
    def info(self) -> ModelInfo:
        return replace(super().info, logit_tolerance=10.0)


@saboteur("sentence-prefix", "label_prefix is accepted by a model of label sentences, and not used")
class SentencePrefix(SentenceModel):
    def refuse_unsupported(self, request: GenerateConfig, capability: Capability) -> None:
        super().refuse_unsupported(replace(request, label_prefix=" "), capability)


@saboteur(
    "sentence-accepted",
    "label_sentence is accepted by a model that continues prompts, and not used",
    undeclared=Capability.LABEL_SENTENCES,
)
class SentenceAccepted(ReferenceModel):
    def refuse_unsupported(self, request: GenerateConfig, capability: Capability) -> None:
        super().refuse_unsupported(replace(request, label_sentence=LABEL_SENTENCE), capability)


@saboteur("sentence-cut", "a label's sentence is cut to the context")
class SentenceCut(SentenceClassifier):
    def sentences(self) -> list[str]:
        cut = []
        for sentence in super().sentences():
            try:
                self._engine.prompt_ids(sentence)
            except PromptTooLongError:
                sentence = sentence[:_SHORT]
            cut.append(sentence)
        return cut


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
