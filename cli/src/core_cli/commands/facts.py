"""Facts about a model from its headers, without loading it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sized
from typing import Any

from core.errors import CoreError
from core.models.files import read_config_json, read_json_object, resolve_path
from core.types import DiscoveredModel
from core_cli.commands.discover import modified

# Facts, each with its key in config.json and in GGUF metadata (after the architecture's name).
_KEYS = {
    "context_length": ("max_position_embeddings", "context_length"),
    "num_layers": ("num_hidden_layers", "block_count"),
    "hidden_size": ("hidden_size", "embedding_length"),
    "vocab_size": ("vocab_size", "vocab_size"),
}


def facts_of(path: str, discovered: DiscoveredModel | None, backend: str = "") -> dict[str, Any]:
    """Return facts by name; None for those that the headers lack.

    ``discovered`` is the result of discovery. Raises `ModelNotFoundError` for a path that does not
    exist or, without a named ``backend``, is not a model, and `ModelAccessError` for a path that
    cannot be read.
    """
    location = resolve_path(path)
    form = discovered.format if discovered else _format(location, backend)
    facts: dict[str, Any] = {
        "path": location,
        "format": form,
        "model_type": discovered.model_type or None if discovered else None,
        "size_bytes": discovered.size_bytes if discovered else None,
        "num_files": discovered.num_files if discovered else None,
        "modified": modified(discovered.modified) if discovered else None,
        "quantisation": discovered.quantisation or None if discovered else None,
        "quant_bits": discovered.quant_bits if discovered else None,
        "quant_group": discovered.quant_group if discovered else None,
        "parts": _uses(discovered),
        **dict.fromkeys((*_KEYS, "chat_template")),
    }

    # In a directory with a GGUF file, that file is read; damage is reported by the verdict.
    with contextlib.suppress(CoreError):
        if form == "gguf":
            facts |= _of_gguf(discovered.path if discovered else path)
        elif form == "safetensors":
            facts |= _of_config(location)
    return facts


def _format(location: str, backend: str) -> str | None:
    """Return the format that `core` recognises; None for an unknown one if a backend is named."""
    from core.models.locating import recognised
    from core.registry import REGISTRY

    formats = recognised(location)
    if not formats and not backend:
        REGISTRY.choose(location)  # raises an error that lists the supported formats
    return formats[0] if formats else None


def _uses(discovered: DiscoveredModel | None) -> dict[str, str]:
    """Return the use of each part of a model in Ollama's store."""
    if discovered is None or not discovered.parts:
        return {}
    from core.models.ollama import ADAPTER, unapplied

    adapters = {ADAPTER: "\n".join(discovered.adapters)} if discovered.adapters else {}
    return adapters | {kind: use for kind, use, _ in unapplied(discovered)}


def _of_config(directory: str) -> dict[str, object]:
    config = read_config_json(directory)
    text = config.get("text_config")  # in multimodal models
    known = config | text if isinstance(text, dict) else config
    facts: dict[str, object] = {name: known.get(key) for name, (key, _) in _KEYS.items()}
    return facts | {"chat_template": _has_chat_template(directory)}


def _has_chat_template(directory: str) -> bool:
    names = os.listdir(directory)
    if "chat_template.jinja" in names or "additional_chat_templates" in names:
        return True
    files = ("tokenizer_config.json", "chat_template.json", "processor_config.json")
    return any(
        read_json_object(os.path.join(directory, name)).get("chat_template")
        for name in files
        if name in names
    )


def _of_gguf(file: str) -> dict[str, object]:
    from core.models.gguf import read_gguf

    metadata = read_gguf(file).metadata
    architecture = metadata.get("general.architecture")
    facts: dict[str, object] = {
        name: metadata.get(f"{architecture}.{key}") for name, (_, key) in _KEYS.items()
    }
    facts["chat_template"] = any(key.startswith("tokenizer.chat_template") for key in metadata)
    tokens = metadata.get("tokenizer.ggml.tokens")
    if facts["vocab_size"] is None and isinstance(tokens, Sized):
        facts["vocab_size"] = len(tokens)
    return facts
