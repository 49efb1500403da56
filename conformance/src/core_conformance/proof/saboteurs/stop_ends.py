"""Saboteurs of stops that never come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.errors import InvalidOptionError
from core.options import GenerateConfig
from core.types import Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.engine import Generation
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.vocabulary import decode


@saboteur("prompt-is-matched", "stop strings are looked for in prompt and answer")
class PromptIsMatched(Generation):
    def take(self, logits: Sequence[float]) -> list[Token]:
        tokens = super().take(logits)
        whole = decode(self.context)
        if self.reason is None and any(stop in whole for stop in self.config.stop):
            self.reason = "stop"
        return tokens


@saboteur("border-is-matched", "a stop string may begin with the last characters of the prompt")
class BorderIsMatched(Generation):
    def take(self, logits: Sequence[float]) -> list[Token]:
        tokens = super().take(logits)
        whole = decode(self.prompt)[-8:] + decode(self.context[len(self.prompt) :])
        if self.reason is None and any(whole.find(stop) in range(8) for stop in self.config.stop):
            self.reason = "stop"
        return tokens


@saboteur("empty-lists-refused", "an empty list of stops is refused")
class EmptyListsRefused(ReferenceModel):
    def resolve_request(
        self, operation: str, config: GenerateConfig | None, options: Any
    ) -> GenerateConfig:
        if options.get("stop") in ([], ()):
            raise InvalidOptionError("stop", options["stop"], "a stop string at least")
        return super().resolve_request(operation, config, options)
