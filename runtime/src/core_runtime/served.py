"""What the parts of this package need of a loaded model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from core.types import Choice, ModelInfo
from core_runtime.text.tokenizer import ServedTokenizer

ENDLESS = 2**62
"""As many tokens as anybody may want."""


class Memory(NamedTuple):
    """Device memory in bytes."""

    peak: int
    active: int


class ServedModel(Protocol):
    """What a load leaves, as far as requests look at it."""

    @property
    def tokenizer(self) -> ServedTokenizer:
        """Text to token ids and back."""
        ...

    @property
    def info(self) -> ModelInfo:
        """Facts about the model."""
        ...

    @property
    def own_context(self) -> int:
        """The context that the model was made for; ``info`` has the one it was loaded with."""
        ...

    @property
    def choices(self) -> Sequence[Choice]:
        """What was chosen at load, and why."""
        ...

    @property
    def stop_ids(self) -> frozenset[int]:
        """The tokens that end every generation."""
        ...

    @property
    def rotates(self) -> bool:
        """Whether a generation goes on beyond the context."""
        ...

    def memory(self) -> Memory:
        """What is held now, and the peak; from any thread."""
        ...


def room(model: ServedModel, prompt_tokens: int) -> int:
    """How many tokens may be drawn behind a prompt: one at least."""
    return ENDLESS if model.rotates else max(1, model.info.context_length - prompt_tokens)
