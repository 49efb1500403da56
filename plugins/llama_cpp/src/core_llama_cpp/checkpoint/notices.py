"""Settings in a model's files that are not applied, which a load reports."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from core.models.gguf import read_gguf
from core.types import Choice
from core_llama_cpp.checkpoint.header import ModelHeader

_LOG = logging.getLogger("core_llama_cpp")
_POOLINGS = {1: "mean", 2: "cls", 3: "last"}  # LLAMA_POOLING_TYPE
_PREFIX = "adapter.lora.prompt_prefix"


def notices(header: ModelHeader, adapter: Path | None) -> tuple[Choice, ...]:
    """Return the settings that are not applied, with key and reason, and log them as warnings."""
    unused = (*_of_model(header), *(_of_adapter(adapter) if adapter else ()))
    for choice in unused:
        _LOG.warning("%s: %s %s: %s", header.path, choice.name, choice.value, choice.reason)
    return unused


def _of_model(header: ModelHeader) -> Iterator[Choice]:
    key = f"{header.architecture}.pooling_type"
    if pooling := header.metadata.get(key):
        kind = _POOLINGS.get(pooling, pooling) if isinstance(pooling, int) else pooling
        reason = (
            f"{key} is {kind}, as for an embedding model. Its LM head generates and classifies; "
            "hidden_states reads the last token"
        )
        yield Choice("pooling", "not applied", reason)
    if header.metadata.get("tokenizer.ggml.add_eos_token") is True:
        reason = "tokenizer.ggml.add_eos_token is true, but a prompt is continued, not ended"
        yield Choice("EOS after prompts", "not added", reason)


def _of_adapter(adapter: Path) -> Iterator[Choice]:
    if prefix := read_gguf(adapter).metadata.get(_PREFIX):
        reason = f"{_PREFIX} is {prefix!r:.200}. Begin each prompt with it"
        yield Choice("adapter's prompt prefix", "not added", reason)
