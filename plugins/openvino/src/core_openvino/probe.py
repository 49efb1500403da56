"""The reasons not to load a model, from its headers. Imports neither openvino nor numpy."""

from __future__ import annotations

import os
from pathlib import Path

from core.models.files import model_formats, resolve_path
from core_runtime.checkpoint.config import load_config, parse_config
from core_runtime.checkpoint.own_files import without_weights
from core_runtime.gguf_files import find_files
from core_runtime.tokenizer.missing import missing_tokenizer


def gguf_file(path: str | os.PathLike[str]) -> Path | None:
    """Return the GGUF file that a path names; None for a safetensors directory.

    Raises `core.ModelError` if the path is not a model.
    """
    return None if "safetensors" in model_formats(path) else find_files(path).first


def refusal_of_files(path: str | os.PathLike[str]) -> str | None:
    """Return what is missing or unsupported. Raises `core.ModelError`."""
    file = gguf_file(path)
    if file is not None:
        _check_gguf(file)
        return None
    directory = Path(resolve_path(path))
    load_config(directory, tensors=False)
    return without_weights(directory) or missing_tokenizer(directory)


def _check_gguf(file: Path) -> None:
    """Check all that a load checks but the data, so that llama_cpp gets what is not read here."""
    from core_runtime.gguf.config import hf_config
    from core_runtime.gguf.ends import end_ids
    from core_runtime.gguf.keys import check_keys
    from core_runtime.gguf.metadata import LOAD
    from core_runtime.gguf.source import GgufSource
    from core_runtime.gguf.templates import chat_templates
    from core_runtime.gguf.tensors import check_architecture, plan
    from core_runtime.gguf.vocabulary import check_vocabulary

    source = GgufSource(file, LOAD)
    check_architecture(source)
    config = parse_config(hf_config(source, "float32"), str(file))
    plan(source, config)
    check_vocabulary(source.metadata)
    chat_templates(source.metadata)
    end_ids(source.metadata)
    check_keys(source.metadata)  # after all reads of metadata
