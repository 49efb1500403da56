"""Token usage of a request, as the APIs count it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from core.extensions import Tokenizing
from core.protocols import TextModel
from core.types import GenerateMetrics


@dataclass(frozen=True, slots=True)
class Usage:
    """Prompt tokens, those of them that were cached, and generated tokens."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    @classmethod
    def of(cls, metrics: GenerateMetrics) -> Usage:
        """Return the usage of one call."""
        return cls(metrics.prompt_tokens, metrics.cached_prompt_tokens, metrics.generated_tokens)

    @property
    def total_tokens(self) -> int:
        """The sum of prompt tokens and generated tokens."""
        return self.input_tokens + self.output_tokens


def token_count(model: TextModel, prompts: Iterable[str]) -> int:
    """Return the tokens of all prompts; 0 if the model does not expose its tokenizer."""
    if not isinstance(model, Tokenizing):
        return 0
    return sum(len(model.encode(prompt)) for prompt in prompts)
