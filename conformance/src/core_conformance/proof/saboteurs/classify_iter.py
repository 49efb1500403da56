"""Saboteurs of classify_iter: rows out of order, and input that is collected first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Unpack

from core.options import ClassifyOptions, GenerateConfig
from core.types import ClassifyResult
from core_conformance.proof.registry import saboteur
from core_conformance.reference.optional import ReferenceModel


@saboteur("stream-sorts", "classify_iter gives short prompts first")
class StreamSorts(ReferenceModel):
    def _classified(
        self, prompts: Iterator[str], config: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        ahead = [prompt for _, prompt in zip(range(8), prompts, strict=False)]
        yield from super()._classified(iter(sorted(ahead, key=len)), config)
        yield from super()._classified(prompts, config)


@saboteur("stream-collects", "classify_iter reads all of its input before it answers")
class StreamCollects(ReferenceModel):
    def classify_iter(
        self,
        prompts: Iterable[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> Iterator[ClassifyResult]:
        return super().classify_iter(list(prompts), config, **options)
