"""Saboteurs of options in pairs in classify, classify_iter and score, and of shares of draws."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any, Unpack

from core.kit.labels import softmax
from core.options import ClassifyOptions, GenerateConfig, RequestOptions
from core.types import ClassifyResult, Score, Token
from core_conformance.proof.registry import saboteur
from core_conformance.proof.saboteurs.sampling import ClassifiesOtherwise
from core_conformance.reference.classification import Classifier
from core_conformance.reference.language import log_softmax
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.sampling import penalised, sample, typical
from core_conformance.reference.vocabulary import decode

Config = GenerateConfig


def _confuses(instead: Callable[[Config], dict[str, Any]]) -> type:
    def of(self: object, config: Config) -> dict[str, Any]:
        return instead(config)

    return type("Confuses", (ClassifiesOtherwise,), {"instead": of})


_CONFUSIONS: tuple[tuple[str, str, Callable[[Config], dict[str, Any]]], ...] = (
    (
        "classify-forgets-penalty-with-logprobs",
        "classify knows no repeat_penalty where return_logprobs asks for more",
        lambda config: {"repeat_penalty": 1.0} if config.return_logprobs else {},
    ),
    (
        "classify-forgets-top-p-beside-min-p",
        "classify does not look at top_p where min_p is given",
        lambda config: {"top_p": 1.0} if config.min_p else {},
    ),
    (
        "classify-forgets-seed-with-labels",
        "with labels, classify does not look at seed",
        lambda config: {"seed": None} if config.labels else {},
    ),
)
for _name, _breaks, _instead in _CONFUSIONS:
    saboteur(_name, _breaks)(_confuses(_instead))


class OtherLogits(Classifier):
    """Gives other logits than the model's if they are requested; draws from the model's."""

    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        result = super().result(prompt, ids, logits)
        if result.logits is None:
            return result
        return dataclasses.replace(result, logits=array("f", self.instead(logits, ids)))

    def instead(self, logits: Sequence[float], ids: list[int]) -> Sequence[float]:
        """Return the logits that are given."""
        raise NotImplementedError


@saboteur("logits-penalised", "return_logits gives those after the repeat penalty")
class LogitsPenalised(OtherLogits):
    def instead(self, logits: Sequence[float], ids: list[int]) -> Sequence[float]:
        return penalised(logits, ids, self.config.repeat_penalty)


@saboteur("logits-without-what-is-dropped", "return_logits leaves out what typical_p drops")
class LogitsWithoutWhatIsDropped(OtherLogits):
    def instead(self, logits: Sequence[float], ids: list[int]) -> Sequence[float]:
        hides = self.config.temperature and self.config.typical_p < 1.0
        return typical(logits, self.config.typical_p) if hides else logits


@saboteur("logits-masked-by-labels", "with labels, return_logits gives half of the logits")
class LogitsMaskedByLabels(OtherLogits):
    def instead(self, logits: Sequence[float], ids: list[int]) -> Sequence[float]:
        if not self.config.labels:
            return logits
        middle = sorted(logits)[len(logits) // 2]
        return [value if value > middle else -1e4 for value in logits]


class OtherLabels(Classifier):
    """Judges labels by options that are for the token alone."""

    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        result = super().result(prompt, ids, logits)
        if result.logprobs is None:
            return result
        shares = softmax([self.instead(value) for value in result.logprobs.values()])
        return dataclasses.replace(
            result, probabilities=dict(zip(result.logprobs, shares, strict=True))
        )

    def instead(self, logprob: float) -> float:
        """Return the logprob that counts."""
        raise NotImplementedError


@saboteur("labels-at-the-temperature", "labels have their probabilities at the temperature")
class LabelsAtTheTemperature(OtherLabels):
    def instead(self, logprob: float) -> float:
        return logprob / (self.config.temperature or 1.0)


@saboteur("labels-penalised", "repeat_penalty counts in the probabilities of labels")
class LabelsPenalised(OtherLabels):
    def instead(self, logprob: float) -> float:
        return logprob * self.config.repeat_penalty


class DrawsOtherwise(Classifier):
    """Draws the token from other logits than the model's."""

    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        result, config = super().result(prompt, ids, logits), self.config
        if not config.temperature:
            return result
        token = sample(self.instead(logits, ids), ids, config, Random(config.seed))
        logprob = log_softmax(logits)[token] if config.return_logprobs else None
        return dataclasses.replace(result, token=Token(token, decode([token]), logprob))

    def instead(self, logits: Sequence[float], ids: list[int]) -> Sequence[float]:
        """Return the logits that it draws from."""
        raise NotImplementedError


@saboteur("top-k-first", "top_k comes before top_p, which then looks at what top_k left")
class TopKFirst(DrawsOtherwise):
    def instead(self, logits: Sequence[float], ids: list[int]) -> Sequence[float]:
        if not self.config.top_k:
            return logits
        scores = penalised(logits, ids, self.config.repeat_penalty)
        border = sorted(scores, reverse=True)[self.config.top_k - 1]
        return [
            value if score >= border else -1e4 for value, score in zip(logits, scores, strict=True)
        ]


@saboteur(
    "iter-forgets-top-k-with-labels", "classify_iter does not look at top_k where labels are given"
)
class IterForgetsTopK(ReferenceModel):
    def classify_iter(
        self,
        prompts: Iterable[str],
        config: Config | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> Iterator[ClassifyResult]:
        labels = options.get("labels") or (config and config.labels)
        if labels and config is not None:
            config = dataclasses.replace(config, top_k=0)
        if labels and "top_k" in options:
            options["top_k"] = 0
        return super().classify_iter(prompts, config, **options)


@saboteur(
    "scores-at-the-temperature",
    "score divides by the temperature of a config that it should not look at",
)
class ScoresAtTheTemperature(ReferenceModel):
    def score(
        self,
        prompts: Sequence[str],
        continuations: Sequence[str],
        config: Config | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> list[Score]:
        heat = (config.temperature if config else 0.0) or 1.0
        return [
            dataclasses.replace(
                score, token_logprobs=tuple(value / heat for value in score.token_logprobs)
            )
            for score in super().score(prompts, continuations, config, **options)
        ]
