"""What the headers say about a model, without loading it."""

from __future__ import annotations

import os
from collections.abc import Sized
from typing import TYPE_CHECKING, Any

from core.api import discover
from core.models.files import model_formats, read_config_json, resolve_path

if TYPE_CHECKING:
    from core.types import DiscoveredModel

# One fact, under its key in config.json and in GGUF metadata (after the architecture's name).
_KEYS = {
    "context_length": ("max_position_embeddings", "context_length"),
    "num_layers": ("num_hidden_layers", "block_count"),
    "hidden_size": ("hidden_size", "embedding_length"),
    "vocab_size": ("vocab_size", "vocab_size"),
}


def facts_of(path: str) -> dict[str, Any]:
    """Facts by name; None for what the headers do not say. Raises `ModelError`."""
    location = resolve_path(path)
    form = model_formats(location)[0]
    found = _discovered(location)

    facts: dict[str, Any] = {
        "path": location,
        "format": form,
        "model_type": found.model_type if found else None,
        "size_bytes": found.size_bytes if found else None,
        "num_files": found.num_files if found else None,
        "quant_bits": found.quant_bits if found else None,
        "quant_group": found.quant_group if found else None,
    }

    # Of a directory with GGUF files, the one that was discovered is read.
    file = found.path if found and form == "gguf" else location
    return facts | (_of_gguf(file) if form == "gguf" else _of_config(location))


def _discovered(location: str) -> DiscoveredModel | None:
    """The model at ``location`` itself; None when discovery sees none, as without weights."""
    file = not os.path.isdir(location)
    models = discover(os.path.dirname(location) if file else location, 0)
    if file:
        models = [model for model in models if model.path == location]
    return models[0] if models else None


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
