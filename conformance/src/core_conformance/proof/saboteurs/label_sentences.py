"""Saboteurs of label sentences: their scores, their sentences, and what is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from core.errors import PromptTooLongError
from core.kit.labels import sentence_result
from core.options import LABEL_SENTENCE, GenerateConfig
from core.protocols import Capability
from core.types import ClassifyResult, ModelInfo, Token
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


@saboteur("sentence-alone", "with labels_only the label is the last")
class SentenceAlone(SentenceClassifier):
    def compared(self, ids: Sequence[int]) -> ClassifyResult:
        result = super().compared(ids)
        alone = ClassifyResult(label=self.config.labels[-1])
        return alone if self.config.labels_only else result


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
        """Facts about the model, one of them wrong."""
        return replace(super().info, logit_tolerance=10.0)


class Rescored(SentenceClassifier):
    """A classifier that changes the scores."""

    def compared(self, ids: Sequence[int]) -> ClassifyResult:
        shares = super().compared(ids).probabilities or {}
        return sentence_result(list(shares), self.changed([math.log(p) for p in shares.values()]))

    def changed(self, scores: list[float]) -> list[float]:
        """Return the scores that count instead of these."""
        raise NotImplementedError


@saboteur("sentence-first", "the first label has a better score")
class SentenceFirst(Rescored):
    def changed(self, scores: list[float]) -> list[float]:
        return [scores[0] + 0.1, *scores[1:]]


@saboteur("sentence-sixteen", "from the seventeenth label on, each has the score of one before it")
class SentenceSixteen(Rescored):
    def changed(self, scores: list[float]) -> list[float]:
        return [scores[place % _FEW] for place in range(len(scores))]


@saboteur("sentence-replaced-twice", "a label's own {label} is replaced as well")
class SentenceReplacedTwice(SentenceClassifier):
    def sentences(self) -> list[str]:
        return [
            sentence.replace("{label}", label)
            for label, sentence in zip(self.config.labels, super().sentences(), strict=True)
        ]


@saboteur("sentence-pattern", "a label is read as the replacement of a pattern")
class SentencePattern(SentenceClassifier):
    def sentences(self) -> list[str]:
        sentence, labels = self.config.label_sentence, self.config.labels
        return [re.sub(r"\{label\}", label.replace("\\g<0>", ""), sentence) for label in labels]


@saboteur("sentence-default", "the default sentence is another")
class SentenceDefault(SentenceClassifier):
    def sentences(self) -> list[str]:
        if self.config.label_sentence != LABEL_SENTENCE:
            return super().sentences()
        return [f"This example is {label}." for label in self.config.labels]


@saboteur("sentence-ignored", "label_sentence is accepted and not used")
class SentenceIgnored(SentenceClassifier):
    def sentences(self) -> list[str]:
        return list(self.config.labels)


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
