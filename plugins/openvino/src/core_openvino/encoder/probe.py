"""The reasons not to load an encoder, from its headers. Imports neither openvino nor numpy."""

from __future__ import annotations

import os
from pathlib import Path

from core.errors import UnsupportedModelError
from core.models.files import model_formats, resolve_path
from core_openvino.encoder.config import load_encoder_config
from core_runtime.checkpoint.own_files import without_weights
from core_runtime.tokenizer.missing import missing_tokenizer


def refusal_of_files(path: str | os.PathLike[str]) -> str | None:
    """Return what is missing or unsupported. Raises `core.ModelError`."""
    directory = encoder_directory(path)
    load_encoder_config(directory)
    return without_weights(directory) or missing_tokenizer(directory)


def encoder_directory(path: str | os.PathLike[str]) -> Path:
    """Return the directory of a model. Raises `core.ModelError` for anything else."""
    if "safetensors" not in model_formats(path):
        raise UnsupportedModelError(
            f"{os.fspath(path)} is not a directory with safetensors files, which this backend "
            "reads. Another backend may support it: see `infer-cli backends`."
        )
    return Path(resolve_path(path))
