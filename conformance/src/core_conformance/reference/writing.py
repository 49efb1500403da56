"""Makes the files of a reference model: a config.json, and weights that hold nothing."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path

from core_conformance.reference.files import ADAPTER, CONTEXT_LENGTH, MODEL_TYPE
from core_conformance.reference.vocabulary import VOCAB_SIZE


def write_model(directory: str | os.PathLike[str], context_length: int = CONTEXT_LENGTH) -> Path:
    """Make a model that the backend ``reference`` loads; returns the directory."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": MODEL_TYPE, "max_position_embeddings": context_length}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    # An empty safetensors file: the header's length, and the header.
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    _write_adapters(folder / "adapters")
    return folder


def _write_adapters(folder: Path) -> None:
    """Write two adapters that prefer other tokens, and one of a model with more tokens."""
    text = range(0x20, 0x7F)
    for place, name in enumerate(("one", "two")):
        write_adapter(folder / name, dict.fromkeys(text[place::3], 2.0))
    write_adapter(folder / "wrong", {VOCAB_SIZE: 1.0})


def write_adapter(directory: str | os.PathLike[str], bias: Mapping[int, float]) -> Path:
    """Make an adapter that adds ``bias[token]`` to the logits; returns the directory."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ADAPTER).write_text(json.dumps({"bias": dict(bias)}), encoding="utf-8")
    return folder
