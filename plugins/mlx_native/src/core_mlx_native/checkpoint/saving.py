"""Tensors in a safetensors file that is replaced as a whole, or not at all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import mlx.core as mx

from core.system import outputs


def kind_of(name: str, key: str) -> outputs.Kind:
    """Return the kind of the files that have this key in their metadata."""
    start = rb'.{8}\{"__metadata__":\{[^{}]*"%b":' % re.escape(key.encode())
    return outputs.Kind(name, re.compile(start, re.DOTALL))


def save_tensors(
    file: Path, tensors: Mapping[str, mx.array], kind: outputs.Kind, metadata: Mapping[str, str]
) -> None:
    """Write tensors in the place of an earlier file of this kind, whose key is in the metadata.

    Raises `core.OutputError` for a file of anything else, and OSError.
    """
    try:
        with outputs.draft(file, kind) as partial:
            mx.save_safetensors(str(partial), dict(tensors), metadata=dict(metadata))
    except RuntimeError as error:  # MLX's word for a full disk
        raise OSError(f"{file} could not be written: {error}.") from error
