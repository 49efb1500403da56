"""Makes the files of a reference model: a config.json, and weights that hold nothing."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path

from core_conformance.reference.files import ADAPTER, CONTEXT_LENGTH, MODEL_TYPE


def write_model(directory: str | os.PathLike[str], context_length: int = CONTEXT_LENGTH) -> Path:
    """Make a model that the backend ``reference`` loads; returns the directory."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": MODEL_TYPE, "max_position_embeddings": context_length}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    # An empty safetensors file: the header's length, and the header.
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    return folder


def write_adapter(directory: str | os.PathLike[str], bias: Mapping[int, float]) -> Path:
    """Make an adapter that adds ``bias[token]`` to the logits; returns the directory."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ADAPTER).write_text(json.dumps({"bias": dict(bias)}), encoding="utf-8")
    return folder
