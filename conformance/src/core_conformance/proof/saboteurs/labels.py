"""Saboteurs of labels."""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import LabelError
from core.kit.labels import LabelTrie, build_trie, label_texts
from core.options import GenerateConfig
from core.types import ClassifyResult, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference import vocabulary
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel

Values = dict[str, float]


class Relabels(Classifier):
    """Changes the label fields of each result that has them."""

    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        result = super().result(prompt, ids, logits)
        if result.probabilities is None or result.logprobs is None:
            return result
        return dataclasses.replace(
            result, **self.changed(result, result.probabilities, result.logprobs)
        )

    def changed(self, result: ClassifyResult, probabilities: Values, logprobs: Values) -> Any:
        raise NotImplementedError


def _exp(logprobs: Values) -> Values:
    return {label: math.exp(value) for label, value in logprobs.items()}


@saboteur("whole-prompt-before-labels", "a token that spans the border is read twice with labels")
class WholePromptBeforeLabels(Classifier):
    def _labels(self, prompt: str, ids: list[int]) -> tuple[int, LabelTrie]:
        return len(ids), super()._labels(prompt, ids)[1]


@saboteur("probabilities-of-all", "the labels' probabilities are those over the whole vocabulary")
class ProbabilitiesOfAll(Relabels):
    def changed(self, result: ClassifyResult, probabilities: Values, logprobs: Values) -> Any:
        return {"probabilities": _exp(logprobs)}


@saboteur("mass-is-one", "label_mass is the sum of the labels' probabilities among one another")
class MassIsOne(Relabels):
    def changed(self, result: ClassifyResult, probabilities: Values, logprobs: Values) -> Any:
        return {"label_mass": math.fsum(probabilities.values())}


@saboteur("first-token-of-labels", "labels are read at their first token alone")
class FirstTokenOfLabels(Classifier):
    def _ask(self, ids: list[int], trie: LabelTrie) -> list[list[float]]:
        first, *later = super()._ask(ids, trie)
        return [first, *([0.0] * len(first) for _ in later)]


@saboteur("token-is-a-label", "with labels, token is the label's")
class TokenIsALabel(Relabels):
    def changed(self, result: ClassifyResult, probabilities: Values, logprobs: Values) -> Any:
        label = f" {result.label}"
        return {"token": Token(vocabulary.encode(label)[1], label, -0.1)}


class AsksOtherwise(Classifier):
    """Classifies with labels that are joined in another way."""

    def __init__(self, engine: Engine, config: GenerateConfig, meter: Meter) -> None:
        super().__init__(engine, dataclasses.replace(config, **self.instead(config)), meter)

    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {}


class JoinsOtherwise(Classifier):
    """Classifies with labels that follow their prompt otherwise."""

    def _labels(self, prompt: str, ids: list[int]) -> tuple[int, LabelTrie]:
        plain = self.config
        spelled = tuple(self.spelled(prompt, label) for label in plain.labels)
        self.config = dataclasses.replace(plain, labels=spelled, label_prefix="")
        anchor, trie = super()._labels(prompt, ids)
        self.config = plain
        return anchor, dataclasses.replace(trie, labels=plain.labels)

    def spelled(self, prompt: str, label: str) -> str:
        return label_texts(prompt, [label], self.config.label_prefix)[0]


@saboteur("two-spaces", "label_prefix comes also after a prompt that ends in white space")
class TwoSpaces(JoinsOtherwise):
    def spelled(self, prompt: str, label: str) -> str:
        lead = self.config.label_prefix if prompt[-1:].isspace() else ""
        return lead + super().spelled(prompt, label)


@saboteur("duplicates-dropped", "labels given twice are taken once")
class DuplicatesDropped(ReferenceModel):
    def classify(
        self, prompts: Sequence[str], *config: Any, **options: Any
    ) -> list[ClassifyResult]:
        if "labels" in options:
            options["labels"] = tuple(dict.fromkeys(filter(None, options["labels"])))
        return super().classify(prompts, *config, **options)


_FEW = 16  # labels
_SHORT = 32  # tokens of a label
_DEEP = 3  # labels that begin a label


class RescoresLabels(Classifier):
    """A classifier that changes the logprobs of labels, and makes all the rest of them."""

    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        result = super().result(prompt, ids, logits)
        if not result.logprobs:
            return result
        logprobs = self.changed(result.logprobs)
        weights = {label: math.exp(value) for label, value in logprobs.items()}
        total = math.fsum(weights.values())
        return dataclasses.replace(
            result,
            logprobs=logprobs,
            probabilities={label: weight / total for label, weight in weights.items()},
            label=max(weights, key=weights.__getitem__),
        )

    def changed(self, logprobs: Mapping[str, float]) -> dict[str, float]:
        raise NotImplementedError


@saboteur("sixteen-labels", "from the seventeenth label on, each has the logprob of one before it")
class SixteenLabels(RescoresLabels):
    def changed(self, logprobs: Mapping[str, float]) -> dict[str, float]:
        values = list(logprobs.values())
        return {label: values[place % _FEW] for place, label in enumerate(logprobs)}


@saboteur("labels-of-32-tokens", "of a label 32 tokens are read")
class LabelsOf32Tokens(Classifier):
    def _labels(self, prompt: str, ids: list[int]) -> tuple[int, LabelTrie]:
        anchor, trie = super()._labels(prompt, ids)
        return anchor, build_trie(trie.labels, [path[:_SHORT] for path in trie.paths])


@saboteur(
    "nested-labels", "a label that begins with four others has the logprob of what it adds to them"
)
class NestedLabels(RescoresLabels):
    def changed(self, logprobs: Mapping[str, float]) -> dict[str, float]:
        return {label: value - self._begun(label, logprobs) for label, value in logprobs.items()}

    def _begun(self, label: str, logprobs: Mapping[str, float]) -> float:
        others = [other for other in logprobs if other != label and label.startswith(other)]
        return logprobs[max(others, key=len)] if len(others) > _DEEP else 0.0


class Alone(Classifier):
    """Gives another result where ``labels_only`` asks for the label alone."""

    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        result = super().result(prompt, ids, logits)
        return self.instead(result) if self._labels_alone else result

    def _ask(self, ids: list[int], trie: LabelTrie) -> list[list[float]]:
        self.trie, self.rows = trie, super()._ask(ids, trie)
        return self.rows

    def instead(self, result: ClassifyResult) -> ClassifyResult:
        raise NotImplementedError


@saboteur(
    "label-of-likeliest-tokens",
    "with labels_only each token of the label is the likeliest after those before it",
)
class LabelOfLikeliestTokens(Alone):
    def instead(self, result: ClassifyResult) -> ClassifyResult:
        followers = dict(
            zip(self.trie.prefixes, zip(self.trie.children, self.rows, strict=True), strict=True)
        )
        path: tuple[int, ...] = ()
        while path not in self.trie.paths:
            tokens, row = followers[path]
            path = (*path, max(tokens, key=row.__getitem__))
        label = self.trie.labels[self.trie.paths.index(path)]
        return dataclasses.replace(result, label=label)


@saboteur(
    "prefixes-are-stripped",
    "white space at the ends of a label_prefix is lost, unless it is one space",
)
class PrefixesAreStripped(Classifier):
    def _labels(self, prompt: str, ids: list[int]) -> tuple[int, LabelTrie]:
        prefix = self.config.label_prefix
        self.config = dataclasses.replace(
            self.config, label_prefix=prefix if prefix == " " else prefix.strip()
        )
        return super()._labels(prompt, ids)


@saboteur("labels-in-any-case", "labels that differ in case alone are taken for duplicates")
class LabelsInAnyCase(Classifier):
    def _labels(self, prompt: str, ids: list[int]) -> tuple[int, LabelTrie]:
        labels = self.config.labels
        if len({label.casefold() for label in labels}) < len(labels):
            raise LabelError(f"labels={labels} hold one label twice.")
        return super()._labels(prompt, ids)


@saboteur(
    "fields-by-the-lead", "labels_only leaves the probabilities out where one label leads clearly"
)
class FieldsByTheLead(Classifier):
    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        result = super().result(prompt, ids, logits)
        if self._labels_alone and (result.margin or 0.0) > 0.1:
            return dataclasses.replace(result, probabilities=None, margin=None)
        return result
