"""Reads the files of a reference model, which `writing` makes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

from core.errors import CoreError, InvalidModelError, ModelNotFoundError, UnsupportedModelError
from core.models.files import read_config_json, read_json_object
from core.types import DiscoveredModel
from core_conformance.reference.vocabulary import VOCAB_SIZE

MODEL_TYPE = "reference"
FORMAT = "safetensors"
CONTEXT_LENGTH = 1024
ADAPTER = "adapter_config.json"
_LARGEST = 1e6
_TOKENS = {str(token): token for token in range(VOCAB_SIZE)}


def refusal(directory: str | os.PathLike[str]) -> str | None:
    """Return the reason why this is not a reference model; None if it is one.

    Raises `ModelError` if broken.
    """
    kind = read_config_json(directory).get("model_type")
    if kind == MODEL_TYPE:
        return None
    return f"it loads models of type {MODEL_TYPE!r} only, and this one is {kind!r}"


def describe(directory: str) -> DiscoveredModel | None:
    """Describe a reference model, by its config.json and the size of its weights."""
    try:
        if refusal(directory) is not None:
            return None
        files = [file.stat() for file in Path(directory).glob("*.safetensors")]
    except (CoreError, OSError):
        return None
    return DiscoveredModel(
        path=directory,
        model_type=MODEL_TYPE,
        quant_bits=0,
        quant_group=0,
        num_files=len(files),
        format=FORMAT,
        size_bytes=sum(file.st_size for file in files),
        source="",
        problem="" if files else "no *.safetensors file",
    )


def read_model(directory: str | os.PathLike[str]) -> int:
    """Return the model's context length, in tokens. Raises `ModelError`."""
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
    bias = read_json_object(os.path.join(os.path.expanduser(path), ADAPTER)).get("bias")
    try:
        read = cast("dict[str, float]", bias).items()
        offsets = {_TOKENS[token]: float(value) for token, value in read}
        if not all(abs(value) < _LARGEST for value in offsets.values()):
            raise ValueError("a number is too large")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidModelError(
            f"{os.fspath(path)!r} holds no adapter: its {ADAPTER} needs a 'bias' that maps token "
            f"ids below {VOCAB_SIZE} to numbers below {_LARGEST:g}."
        ) from error
    return offsets
