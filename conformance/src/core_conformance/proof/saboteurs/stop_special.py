"""Saboteurs of stop strings and continuations that spell special tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from core.kit.text_stream import TokenAssembler
from core.options import GenerateConfig
from core.types import Score
from core_conformance.proof.registry import saboteur
from core_conformance.reference.engine import Generation
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.vocabulary import SPECIAL, Detokenizer


@saboteur(
    "special-tokens-stop-nothing",
    "stop strings are looked for in the text alone, in which special tokens do not show",
)
class SpecialTokensStopNothing(Generation):
    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        super().__init__(ids, config, room)
        self.assembler = TokenAssembler(Detokenizer(), config.stop)


@saboteur(
    "special-continuations", "a continuation that spells a special token is read as that token"
)
class SpecialContinuations(ReferenceModel):
    def do_score(
        self, prompts: Sequence[str], continuations: Sequence[str], request: GenerateConfig
    ) -> list[Score]:
        scores = super().do_score(prompts, continuations, request)
        return [
            dataclasses.replace(score, token_logprobs=score.token_logprobs[:1])
            if text.strip() in SPECIAL
            else score
            for text, score in zip(continuations, scores, strict=True)
        ]
