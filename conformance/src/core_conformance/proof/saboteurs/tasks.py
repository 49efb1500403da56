"""Saboteurs of tasks: labels that count by their place, priors that drift, models alike."""

from __future__ import annotations

import dataclasses
import itertools
import math
from array import array
from typing import ClassVar
from weakref import WeakKeyDictionary

from core.kit.labels import softmax
from core.types import ClassifyResult, ModelInfo
from core_conformance.proof.registry import saboteur
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine
from core_conformance.reference.optional import ReferenceModel

_SEVERAL = 5  # labels


def _with_logprobs(result: ClassifyResult, logprobs: dict[str, float]) -> ClassifyResult:
    """Return the result, as if the model had found the labels so likely."""
    shares = softmax([*logprobs.values()])
    second, first = sorted(shares)[-2:]
    return dataclasses.replace(
        result,
        label=[*logprobs][shares.index(first)],
        probabilities=dict(zip(logprobs, shares, strict=True)),
        logprobs=logprobs,
        margin=first - second,
        label_mass=math.fsum(map(math.exp, logprobs.values())),
    )


@saboteur(
    "first-of-several",
    "of five labels and more, the first one is a little likelier than the model finds it",
)
class FirstOfSeveral(Classifier):
    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        result = super().result(prompt, ids, logits)
        logprobs = dict(result.logprobs or {})
        if len(logprobs) < _SEVERAL:
            return result
        first = next(iter(logprobs))
        return _with_logprobs(result, {**logprobs, first: min(0.0, logprobs[first] + 0.1)})


@saboteur(
    "running-prior",
    "once a dozen rows were asked for some labels, what these rows preferred is taken off",
)
class RunningPrior(Classifier):
    _means: ClassVar[WeakKeyDictionary[Engine, dict[tuple[str, ...], tuple[int, list[float]]]]] = (
        WeakKeyDictionary()
    )

    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        result = super().result(prompt, ids, logits)
        logprobs = result.logprobs
        if logprobs is None or len(logprobs) < _SEVERAL:
            return result

        means = self._means.setdefault(self._engine, {})
        count, mean = means.get(tuple(logprobs), (0, [0.0] * len(logprobs)))
        shares = softmax([*logprobs.values()])
        mean = [old + (new - old) / (count + 1) for old, new in zip(mean, shares, strict=True)]
        means[tuple(logprobs)] = count + 1, mean
        if count < 12:
            return result
        off = [0.2 * math.log(share * len(mean)) for share in mean]
        taken = zip(logprobs.items(), off, strict=True)
        return _with_logprobs(result, {label: value - prior for (label, value), prior in taken})


@saboteur("another-at-each-load", "what a model says of itself is another thing at each load")
class AnotherAtEachLoad(ReferenceModel):
    _loads: ClassVar[itertools.count[int]] = itertools.count()
    _number: int | None = None

    @property
    def info(self) -> ModelInfo:
        if self._number is None:
            self._number = next(self._loads)
        return dataclasses.replace(super().info, quant_group=self._number)
