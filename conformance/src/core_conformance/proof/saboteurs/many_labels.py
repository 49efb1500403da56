"""Saboteurs of labels: those beyond the sixteenth, the ends of long ones, nested ones, and alone.

The last ones are those of ``labels_only``.
"""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections.abc import Mapping

from core.kit.labels import LabelTrie, build_trie
from core.types import ClassifyResult
from core_conformance.proof.registry import saboteur
from core_conformance.reference.classification import Classifier

_FEW = 16  # labels
_SHORT = 32  # tokens of a label
_DEEP = 3  # labels that begin a label


class Relabels(Classifier):
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
        """Return the logprobs that are given instead of these."""
        raise NotImplementedError


@saboteur("sixteen-labels", "from the seventeenth label on, each has the logprob of one before it")
class SixteenLabels(Relabels):
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
class NestedLabels(Relabels):
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
        """Return the result that is given."""
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
    "probabilities-left-out",
    "with labels_only there are no probabilities, though each label is one token",
)
class ProbabilitiesLeftOut(Alone):
    def instead(self, result: ClassifyResult) -> ClassifyResult:
        return ClassifyResult(label=result.label)


@saboteur(
    "probabilities-of-what-was-read",
    "with labels_only labels of several tokens have the probabilities of their first tokens",
)
class ProbabilitiesOfWhatWasRead(Alone):
    def instead(self, result: ClassifyResult) -> ClassifyResult:
        if result.probabilities is not None:
            return result
        weights = [math.exp(self.rows[0][path[0]]) for path in self.trie.paths]
        shares = [weight / math.fsum(weights) for weight in weights]
        ranked = sorted(shares)
        return dataclasses.replace(
            result,
            probabilities=dict(zip(self.trie.labels, shares, strict=True)),
            margin=ranked[-1] - ranked[-2],
        )
