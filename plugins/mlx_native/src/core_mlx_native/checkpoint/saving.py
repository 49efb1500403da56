"""Tensors in a safetensors file that is replaced as a whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import mlx.core as mx


def save_tensors(
    file: Path, tensors: Mapping[str, mx.array], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors; a reader sees the file of before or this one. Raises OSError."""
    draft = file.with_name(f".{os.getpid()}-{file.name}")
    try:
        mx.save_safetensors(str(draft), dict(tensors), metadata=dict(metadata or {}))
        with open(draft, "rb+") as written:
            os.fsync(written.fileno())
        os.replace(draft, file)
    except RuntimeError as error:  # MLX's word for a full disk
        raise OSError(f"{file} could not be written: {error}.") from error
    finally:
        draft.unlink(missing_ok=True)
