"""The batch generation of any backend."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.options import GenerateConfig
    from core.protocols import TextModel
    from core.types import BatchResult
    from core_cli.loading import Loaded
    from core_cli.rows.bulk import Ask


def answering(loaded: Loaded) -> Ask:
    """Return the operation that answers many prompts, one by one if a backend has no batches."""
    from core.protocols import Capability

    together = Capability.BATCH_GENERATE in loaded.capabilities
    return loaded.model.batch_generate if together else _one_by_one(loaded.model)


def _one_by_one(model: TextModel) -> Any:
    """Return a ``batch_generate`` for backends without one: one stream after the other."""
    from core.errors import CoreError
    from core.types import BatchResult, Token

    def answer(prompt: str, config: GenerateConfig) -> BatchResult:
        tokens: list[Token] = []
        try:
            with closing(model.generate(prompt, config)) as stream:
                tokens.extend(stream)
        except CoreError as error:
            return BatchResult(tuple(tokens), "error", error)
        return BatchResult(tuple(tokens), stream.finish_reason or "stop")

    def answers(prompts: Sequence[str], config: GenerateConfig) -> list[BatchResult]:
        return [answer(prompt, config) for prompt in prompts]

    return answers
