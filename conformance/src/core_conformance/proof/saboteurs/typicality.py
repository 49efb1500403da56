"""Saboteurs of typical_p: left out, put in the wrong place, or taken for something else."""

from __future__ import annotations

from typing import Any

from core.options import GenerateConfig
from core_conformance.proof.registry import saboteur
from core_conformance.proof.saboteurs.sampling import ClassifiesOtherwise, OtherOptions


@saboteur("generate-ignores-typical-p", "generate does not look at typical_p")
class GenerateIgnores(OtherOptions):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"typical_p": 1.0}


@saboteur("classify-ignores-typical-p", "classify does not look at typical_p")
class ClassifyIgnores(ClassifiesOtherwise):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"typical_p": 1.0}


@saboteur("typical-p-is-top-p", "classify takes typical_p for another name of top_p")
class IsTopP(ClassifiesOtherwise):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"typical_p": 1.0, "top_p": min(config.top_p, config.typical_p)}


@saboteur(
    "typical-p-behind-top-k", "typical_p looks at what top_k left, and of one token drops none"
)
class BehindTopK(ClassifiesOtherwise):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"typical_p": 1.0} if config.top_k == 1 else {}
