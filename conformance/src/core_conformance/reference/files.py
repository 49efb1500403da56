"""The files of a reference model: a config.json, and weights that hold nothing."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from core.errors import InvalidModelError, ModelNotFoundError, UnsupportedModelError
from core.models.files import read_config_json, read_json_object
from core_conformance.reference.vocabulary import VOCAB_SIZE

MODEL_TYPE = "reference"
CONTEXT_LENGTH = 1024
ADAPTER = "adapter.json"


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
    """Two adapters that like other tokens, and one of a model with more tokens."""
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


def refusal(directory: str | os.PathLike[str]) -> str | None:
    """The reason why this is no reference model; None if it is. Raises `ModelError` if broken."""
    kind = read_config_json(directory).get("model_type")
    if kind == MODEL_TYPE:
        return None
    return f"it loads models of type {MODEL_TYPE!r} only, and this one is {kind!r}"


def read_model(directory: str | os.PathLike[str]) -> int:
    """The model's context length, in tokens. Raises `ModelError`."""
    reason = refusal(directory)
    if reason is not None:
        raise UnsupportedModelError(
            f"Backend 'reference' cannot load {str(directory)!r}: {reason}."
        )

    length = read_config_json(directory).get("max_position_embeddings")
    if not isinstance(length, int) or length < 1:
        raise InvalidModelError(
            f"{str(directory)!r} has no usable max_position_embeddings in its config.json. "
            "Make the model again with core_conformance.reference.write_model()."
        )

    if not any(Path(directory).expanduser().glob("*.safetensors")):
        raise ModelNotFoundError(
            f"{str(directory)!r} has a config.json and no *.safetensors file. Copy it completely."
        )
    return length


def read_adapter(path: str | os.PathLike[str]) -> dict[int, float]:
    """Read an adapter: the number that it adds to each token's logit. Raises `ModelError`."""
    bias = read_json_object(os.path.join(os.path.expanduser(os.fspath(path)), ADAPTER)).get("bias")
    if not isinstance(bias, dict) or not all(_sound(*item) for item in bias.items()):
        raise InvalidModelError(
            f"{os.fspath(path)!r} holds no adapter: its {ADAPTER} needs a 'bias' that maps token "
            f"ids below {VOCAB_SIZE} to numbers."
        )
    return {int(token): float(value) for token, value in cast("dict[str, float]", bias).items()}


def _sound(token: str, value: object) -> bool:
    return (
        token.isdecimal()
        and int(token) < VOCAB_SIZE
        and isinstance(value, int | float)
        and abs(value) < 1e6
    )
