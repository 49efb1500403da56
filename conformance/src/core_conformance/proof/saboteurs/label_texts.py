"""Saboteurs of labels by their text: prefixes, case, and the fields of labels_only."""

from __future__ import annotations

import dataclasses
from array import array

from core.errors import LabelError
from core.kit.labels import LabelTrie
from core.types import ClassifyResult
from core_conformance.proof.registry import saboteur
from core_conformance.reference.classification import Classifier


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
