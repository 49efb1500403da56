"""Saboteurs of labels."""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections.abc import Sequence
from typing import Any, Unpack

from core.kit.labels import LabelTrie, label_lead, label_texts
from core.options import ClassifyOptions, GenerateConfig
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
        """Return the fields that are other."""
        raise NotImplementedError


def _exp(logprobs: Values) -> Values:
    return {label: math.exp(value) for label, value in logprobs.items()}


@saboteur("probabilities-of-all", "the labels' probabilities are those over the whole vocabulary")
class ProbabilitiesOfAll(Relabels):
    def changed(self, result: ClassifyResult, probabilities: Values, logprobs: Values) -> Any:
        return {"probabilities": _exp(logprobs)}


@saboteur("labels-sorted", "probabilities come in the order of the alphabet")
class LabelsSorted(Relabels):
    def changed(self, result: ClassifyResult, probabilities: Values, logprobs: Values) -> Any:
        return {"probabilities": dict(sorted(probabilities.items()))}


@saboteur("first-label", "label is the first label, whatever its probability")
class FirstLabel(Relabels):
    def changed(self, result: ClassifyResult, probabilities: Values, logprobs: Values) -> Any:
        return {"label": next(iter(probabilities))}


@saboteur("margin-is-best", "margin is the best probability")
class MarginIsBest(Relabels):
    def changed(self, result: ClassifyResult, probabilities: Values, logprobs: Values) -> Any:
        return {"margin": max(probabilities.values())}


@saboteur("no-lead-alone", "a single label has the margin 0")
class NoLeadAlone(Relabels):
    def changed(self, result: ClassifyResult, probabilities: Values, logprobs: Values) -> Any:
        return {} if len(probabilities) > 1 else {"margin": 0.0}


@saboteur("mass-is-one", "label_mass is the sum of the labels' probabilities among one another")
class MassIsOne(Relabels):
    def changed(self, result: ClassifyResult, probabilities: Values, logprobs: Values) -> Any:
        return {"label_mass": math.fsum(probabilities.values())}


@saboteur("mass-counts-twice", "label_mass counts a label and what extends it")
class MassCountsTwice(Relabels):
    def changed(self, result: ClassifyResult, probabilities: Values, logprobs: Values) -> Any:
        return {"label_mass": math.fsum(_exp(logprobs).values())}


@saboteur(
    "logprobs-among-labels",
    "a label's logprob is the logarithm of its probability among the labels",
)
class LogprobsAmongLabels(Relabels):
    def changed(self, result: ClassifyResult, probabilities: Values, logprobs: Values) -> Any:
        return {"logprobs": {label: math.log(value) for label, value in probabilities.items()}}


@saboteur("first-token-of-labels", "labels are read at their first token alone")
class FirstTokenOfLabels(Classifier):
    def _ask(self, ids: list[int], trie: LabelTrie) -> list[list[float]]:
        first, *later = super()._ask(ids, trie)
        return [first, *([0.0] * len(first) for _ in later)]


@saboteur("labels-stand-still", "the later tokens of a label are read where its first one is")
class LabelsStandStill(Classifier):
    def _ask(self, ids: list[int], trie: LabelTrie) -> list[list[float]]:
        return [super(LabelsStandStill, self)._ask(ids, trie)[0] for _ in trie.prefixes]


@saboteur(
    "labels-of-neighbours",
    "the labels of all rows of a micro-batch are read after the first of them",
)
class LabelsOfNeighbours(Classifier):
    def read(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        self.first: list[int] = []
        return super().read(prompts)

    def _ask(self, ids: list[int], trie: LabelTrie) -> list[list[float]]:
        self.first = self.first or ids
        return super()._ask(self.first, trie)


@saboteur("labels-in-one-pass", "a label is read with the labels before it in its context")
class LabelsInOnePass(Classifier):
    def _ask(self, ids: list[int], trie: LabelTrie) -> list[list[float]]:
        return super()._ask([*ids[:-1], *trie.paths[0][-1:], ids[-1]], trie)


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
        """Return the options that differ."""
        return {}


@saboteur("prefix-is-a-space", "label_prefix is not looked at: it is always a space")
class PrefixIsASpace(AsksOtherwise):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"label_prefix": " "}


@saboteur("no-prefix", "labels are put after the prompt without label_prefix")
class NoPrefix(AsksOtherwise):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"label_prefix": ""}


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
        """Return the label with what is between the prompt and it."""
        return label_texts(prompt, [label], self.config.label_prefix)[0]


@saboteur("two-spaces", "label_prefix comes also after a prompt that ends in white space")
class TwoSpaces(JoinsOtherwise):
    def spelled(self, prompt: str, label: str) -> str:
        lead = self.config.label_prefix if prompt[-1:].isspace() else ""
        return lead + super().spelled(prompt, label)


@saboteur("space-after-all", "label_prefix comes also after text that takes no space")
class SpaceAfterAll(JoinsOtherwise):
    def spelled(self, prompt: str, label: str) -> str:
        return super().spelled(f"{prompt}a" if not prompt[-1:].isspace() else prompt, label)


@saboteur("space-after-words", "label_prefix comes after letters and digits alone")
class SpaceAfterWords(JoinsOtherwise):
    def spelled(self, prompt: str, label: str) -> str:
        return super().spelled(prompt, label) if prompt[-1:].isalnum() else label


@saboteur(
    "own-space-and-another", "label_prefix comes also before a label that begins with white space"
)
class OwnSpaceAndAnother(JoinsOtherwise):
    def spelled(self, prompt: str, label: str) -> str:
        return label_lead(prompt, self.config.label_prefix) + label


@saboteur("duplicates-dropped", "labels given twice are taken once")
class DuplicatesDropped(ReferenceModel):
    def classify(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        if "labels" in options:
            options["labels"] = tuple(dict.fromkeys(filter(None, options["labels"])))
        return super().classify(prompts, config, **options)
