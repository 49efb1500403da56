"""Saboteur of stop strings that spell special tokens."""

from __future__ import annotations

from collections.abc import Sequence

from core.kit.text_stream import TokenAssembler
from core.options import GenerateConfig
from core_conformance.proof.registry import saboteur
from core_conformance.reference.engine import Generation
from core_conformance.reference.vocabulary import Detokenizer


@saboteur(
    "special-tokens-stop-nothing",
    "stop strings are looked for in the text alone, in which special tokens do not show",
    {"stop.special"},
)
class SpecialTokensStopNothing(Generation):
    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        super().__init__(ids, config, room)
        self.assembler = TokenAssembler(Detokenizer(), config.stop)
