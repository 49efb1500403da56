"""Whether a model can be loaded, from its GGUF header alone."""

from __future__ import annotations

import os

from core.errors import CoreError, TokenizerError, UnsupportedModelError
from core_llama_cpp.architectures import architecture_refusal
from core_llama_cpp.files import ModelFiles, find_files
from core_llama_cpp.header import ModelHeader, read_header


def refusal(path: str | os.PathLike[str]) -> str | None:
    """Why this plugin cannot load the model; None when nothing in its header speaks against it."""
    try:
        probe(path)
    except CoreError as error:
        return str(error)
    return None


def probe(path: str | os.PathLike[str]) -> tuple[ModelFiles, ModelHeader]:
    """The files and the header of a model that can be loaded.

    Raises what `find_files` and `read_header` raise, `UnsupportedModelError` for its
    architecture, `TokenizerError` where the file holds no tokenizer.
    """
    files = find_files(path)
    header = read_header(files.first)
    if reason := architecture_refusal(header):
        raise UnsupportedModelError(f"{files.first} cannot be loaded: {reason}.")
    if header.metadata.get("tokenizer.ggml.model") in (None, "no_vocab") or not header.vocab_size:
        raise TokenizerError(
            f"{files.first} holds no tokenizer (tokenizer.ggml.model and .tokens). Convert the "
            "model again, with its tokenizer files beside it."
        )
    return files, header
