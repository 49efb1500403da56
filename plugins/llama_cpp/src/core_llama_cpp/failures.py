"""What llama.cpp says when a load fails, as typed errors: a null pointer and words in its log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from core.errors import InvalidModelError, ModelError, OutOfMemoryError, UnsupportedModelError

_OUT_OF_MEMORY = ("failed to allocate", "out of memory", "unable to allocate", "bad_alloc")
_UNSUPPORTED = ("unknown model architecture", "unknown pre-tokenizer", "unsupported")
_LEAD = "error loading model: "


def load_failure(path: Path, said: Sequence[str]) -> ModelError | OutOfMemoryError:
    """The error for a model, or its context, that llama.cpp did not make."""
    reason = _reason(said)
    text = " ".join(said).lower()
    if any(words in text for words in _OUT_OF_MEMORY):
        return OutOfMemoryError(
            f"{path} does not fit the device's memory: llama.cpp said {reason!r}. Choose a "
            "smaller context_len, fewer gpu_layers, or free some memory."
        )
    if any(words in text for words in _UNSUPPORTED):
        return UnsupportedModelError(
            f"llama.cpp cannot run {path}: {reason}. A later one may: "
            "pip install --upgrade llama-cpp-python"
        )
    return InvalidModelError(
        f"llama.cpp cannot load {path}: {reason}. Download or convert it again."
    )


def _reason(said: Sequence[str]) -> str:
    """The line that tells the cause; the last ones only say that loading failed."""
    told = [line.split(_LEAD, 1)[1] for line in said if _LEAD in line]
    return told[-1] if told else said[0] if said else "it gave no reason"
