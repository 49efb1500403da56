"""Tokens that a request took, as the wires count them."""

from __future__ import annotations

from dataclasses import dataclass

from core.types import GenerateMetrics


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens read, those of them that no pass computed, and tokens written."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    @classmethod
    def of(cls, metrics: GenerateMetrics) -> Usage:
        """What one call cost."""
        return cls(metrics.prompt_tokens, metrics.cached_prompt_tokens, metrics.generated_tokens)

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
        )

    @property
    def total_tokens(self) -> int:
        """Read and written."""
        return self.input_tokens + self.output_tokens
