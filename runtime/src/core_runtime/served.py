"""Interfaces of a loaded model that this package needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from core.types import Choice, ModelInfo
from core_runtime.text.tokenizer import ServedTokenizer

ENDLESS = 2**62
"""A number of tokens that is never reached."""


class Memory(NamedTuple):
    """Device memory in bytes."""

    peak: int
    active: int


class ServedModel(Protocol):
    """Loaded model, as far as requests need it."""

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
        """The context that the model was trained for; ``info`` has the one it was loaded with."""
        ...

    @property
    def choices(self) -> Sequence[Choice]:
        """The settings chosen at load, with the reasons."""
        ...

    @property
    def stop_ids(self) -> frozenset[int]:
        """The tokens that end every generation."""
        ...

    @property
    def rotates(self) -> bool:
        """True if a generation continues past the context limit."""
        ...

    def memory(self) -> Memory:
        """Return the memory in use now, and the peak; from any thread."""
        ...


def room(model: ServedModel, prompt_tokens: int) -> int:
    """Return the number of tokens that may be drawn after a prompt: at least one."""
    return ENDLESS if model.rotates else max(1, model.info.context_length - prompt_tokens)
