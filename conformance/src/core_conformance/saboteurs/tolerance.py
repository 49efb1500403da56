"""Saboteurs of `ModelInfo.logit_tolerance`: what excuses noise must not excuse errors."""

from __future__ import annotations

import dataclasses

from core.types import ModelInfo
from core_conformance.reference.optional import ReferenceModel
from core_conformance.saboteur import saboteur


@saboteur(
    "tolerance-excuses-all",
    "logit_tolerance is larger than the logits, so that no two of them count as different",
    {"classify.tolerance", "labels.prefix"},
)
class ToleranceExcusesAll(ReferenceModel):
    @property
    def info(self) -> ModelInfo:
        return dataclasses.replace(super().info, logit_tolerance=1e6)
