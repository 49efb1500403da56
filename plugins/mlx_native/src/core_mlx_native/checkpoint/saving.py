"""Atomic replacement of safetensors files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import mlx.core as mx

from core.system import outputs


def kind_of(name: str, key: str) -> outputs.Kind:
    """Return the file kind with this key in its metadata."""
    start = rb'.{8}\{"__metadata__":\{[^{}]*"%b":' % re.escape(key.encode())
    return outputs.Kind(name, re.compile(start, re.DOTALL))


def save_tensors(
    file: Path, tensors: Mapping[str, mx.array], kind: outputs.Kind, metadata: Mapping[str, str]
) -> None:
    """Write tensors, replacing an earlier file of this kind, whose key is in the metadata.

    Raises `core.OutputError` for a file of another kind, and OSError.
    """
    try:
        with outputs.draft(file, kind) as partial:
            mx.save_safetensors(str(partial), dict(tensors), metadata=dict(metadata))
    except RuntimeError as error:  # MLX's error for a full disk
        raise OSError(f"Cannot write {file}: {error}.") from error
