"""Facts about a model from its headers, without loading it."""

from __future__ import annotations

import contextlib
from collections.abc import Sized
from typing import Any

from core.errors import CoreError
from core.models.files import read_config_json, resolve_path
from core.types import DiscoveredModel
from core_cli.commands.discover import modified

# One fact, under its key in config.json and in GGUF metadata (after the architecture's name).
_KEYS = {
    "context_length": ("max_position_embeddings", "context_length"),
    "num_layers": ("num_hidden_layers", "block_count"),
    "hidden_size": ("hidden_size", "embedding_length"),
    "vocab_size": ("vocab_size", "vocab_size"),
}


def facts_of(path: str, found: DiscoveredModel | None, backend: str = "") -> dict[str, Any]:
    """Return facts by name; None for those that the headers lack.

    ``found`` is the result of discovery. Raises `ModelNotFoundError` and `ModelAccessError`
    where nothing is there, or what may not be read, and where it is not a model to anybody: not to
    `core`, and no ``backend`` is asked for by name.
    """
    location = resolve_path(path)
    form = found.format if found else _format(location, backend)
    facts: dict[str, Any] = {
        "path": location,
        "format": form,
        "model_type": found.model_type or None if found else None,
        "size_bytes": found.size_bytes if found else None,
        "num_files": found.num_files if found else None,
        "modified": modified(found.modified) if found else None,
        "quantisation": found.quantisation or None if found else None,
        "quant_bits": found.quant_bits if found else None,
        "quant_group": found.quant_group if found else None,
        "parts": _uses(found),
        **dict.fromkeys(_KEYS),
    }

    # In a directory with a GGUF file, that file is read; damage is reported by the verdict.
    with contextlib.suppress(CoreError):
        if form == "gguf":
            facts |= _of_gguf(found.path if found else path)
        elif form == "safetensors":
            facts |= _of_config(location)
    return facts


def _format(location: str, backend: str) -> str | None:
    """Return the format that `core` recognises.

    None where it knows none, and a backend is named.
    """
    from core.models.locating import recognised
    from core.registry import REGISTRY

    formats = recognised(location)
    if not formats and not backend:
        REGISTRY.choose(location)  # raises: it says what the backends read
    return formats[0] if formats else None


def _uses(found: DiscoveredModel | None) -> dict[str, str]:
    """Return what becomes of each part that a name of Ollama's store stands for."""
    if found is None or not found.parts:
        return {}
    from core.models.ollama import ADAPTER, unapplied

    adapters = {ADAPTER: "\n".join(found.adapters)} if found.adapters else {}
    return adapters | {kind: use for kind, use, _ in unapplied(found)}


def _of_config(directory: str) -> dict[str, object]:
    config = read_config_json(directory)
    text = config.get("text_config")  # of models that also see or hear
    known = config | text if isinstance(text, dict) else config
    return {name: known.get(key) for name, (key, _) in _KEYS.items()}


def _of_gguf(file: str) -> dict[str, object]:
    from core.models.gguf import read_gguf

    metadata = read_gguf(file).metadata
    architecture = metadata.get("general.architecture")
    facts: dict[str, object] = {
        name: metadata.get(f"{architecture}.{key}") for name, (_, key) in _KEYS.items()
    }
    tokens = metadata.get("tokenizer.ggml.tokens")
    if facts["vocab_size"] is None and isinstance(tokens, Sized):
        facts["vocab_size"] = len(tokens)
    return facts
