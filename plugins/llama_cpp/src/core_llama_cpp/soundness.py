"""Contradictions in a header at which llama.cpp ends the process, instead of refusing the file.

Each stands for one of its assertions (``llama-vocab.cpp``, ``llama-model.cpp`` of version 0.3.35).
"""

from __future__ import annotations

from core.errors import InvalidModelError
from core.gguf_header import GgufValue, read_gguf
from core_llama_cpp.header import ModelHeader

_MOST_LAYERS, _MOST_EXPERTS = 512, 512  # LLAMA_MAX_LAYERS, LLAMA_MAX_EXPERTS
_TOKENS = "tokenizer.ggml.tokens"


def check_soundness(header: ModelHeader) -> None:
    """Raise `InvalidModelError` for what would end the process. Reads the whole vocabulary."""
    if not 0 < header.num_layers <= _MOST_LAYERS:
        raise _broken(header, f"it has {header.num_layers} layers, and 1 to {_MOST_LAYERS} load")
    experts, used = _number(header, "expert_count"), _number(header, "expert_used_count")
    if not 0 <= used <= experts <= _MOST_EXPERTS or (experts and not used):
        raise _broken(header, f"it uses {used} of {experts} experts")
    tokens = _tokens(header)
    if len(set(tokens)) != len(tokens):
        raise _broken(header, f"{len(tokens) - len(set(tokens))} of its tokens occur twice")


def _number(header: ModelHeader, key: str) -> int:
    value = header.metadata.get(f"{header.architecture}.{key}", 0)
    return value if isinstance(value, int) else -1


def _tokens(header: ModelHeader) -> list[str]:
    try:
        found: GgufValue = read_gguf(header.path, arrays=True, only=(_TOKENS,)).metadata[_TOKENS]
    except InvalidModelError:
        return []  # tokens that are no UTF-8: llama.cpp takes them
    return [token for token in found if isinstance(token, str)] if isinstance(found, list) else []


def _broken(header: ModelHeader, what: str) -> InvalidModelError:
    return InvalidModelError(
        f"{header.path} contradicts itself: {what}. Download or convert it again."
    )
