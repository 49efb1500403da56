"""Probe of a model: whether its GGUF header and llama.cpp allow to load it."""

from __future__ import annotations

import functools
import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import IO

from core.errors import CoreError, InvalidModelError, TokenizerError, UnsupportedModelError
from core_llama_cpp.checkpoint.header import ModelHeader, read_header
from core_llama_cpp.library import load_library, logged_errors
from core_runtime.gguf_files import ModelFiles, find_files
from core_runtime.threads import interruptible

_NOT_CAUSAL = frozenset(
    {
        *("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "eurobert"),
        *("jina-bert-v2", "jina-bert-v3", "gemma-embedding", "llama-embed"),
        *("t5", "t5encoder", "dream", "llada", "llada-moe", "rnd1"),
        *("eagle3", "dflash", "gemma4-assistant"),  # drafts of another model
        *("wavtokenizer-dec", "qwen3tts", "pockettts"),
    }
)
_HYBRID = frozenset({"deepseek4", "minimax-01"})  # without a key that shows it
_RECURRENT_KEYS = ("ssm", "wkv", "shortconv", "kda")
_RANK = 4  # LLAMA_POOLING_TYPE_RANK
_UNKNOWN = "unknown model architecture"
_STRING = 8  # GGUF's type number


def architecture_refusal(header: ModelHeader) -> str | None:
    """Return the reason why this plugin cannot run a model's architecture; None if it can.

    Raises `BackendUnavailableError` if llama.cpp cannot be used.
    """
    name = header.architecture
    if name in _NOT_CAUSAL or header.metadata.get(f"{name}.attention.causal") is False:
        return f"models of the architecture {name!r} do not generate text token by token"

    if ranks(header):
        return (
            "it ranks or classifies texts with its own classifier head, which this plugin does not "
            "use. llama-server --reranking runs it; for labels, use the language model that it is "
            "based on"
        )

    if is_recurrent(header):
        return (
            f"models of the architecture {name!r} have a recurrent state (state space, RWKV, "
            "linear attention), and this plugin requires a KV cache"
        )

    if not is_known(name):
        return (
            f"the installed llama.cpp does not support the architecture {name!r:.80}. Try a newer "
            "version: pip install --upgrade llama-cpp-python"
        )
    return None


def is_recurrent(header: ModelHeader) -> bool:
    """Return True for a model with layers that have a state in place of keys and values."""
    marks = tuple(f"{header.architecture}.{part}." for part in _RECURRENT_KEYS)
    return header.architecture in _HYBRID or any(key.startswith(marks) for key in header.metadata)


def ranks(header: ModelHeader) -> bool:
    """Return True for a model whose output is a score or a class, not a next token."""
    name, metadata = header.architecture, header.metadata
    return (
        metadata.get(f"{name}.pooling_type") == _RANK
        or f"{name}.classifier.output_labels" in metadata
    )


def is_known(architecture: str) -> bool:
    """Return True if the installed llama.cpp supports this architecture; reads no weights.

    Imports llama_cpp. Also True if no file can be created for the test: then the load decides.
    """
    llama = load_library()
    try:
        return interruptible(lambda _: _knows(llama, architecture), lambda _: None)
    except OSError:
        return True


@functools.cache
def _knows(llama: ModuleType, architecture: str) -> bool:
    parameters = llama.llama_model_default_params()
    parameters.vocab_only = True
    with _file() as (file, name), logged_errors() as log_lines:
        file.write(_named_only(architecture))
        file.flush()
        model = llama.llama_model_load_from_file(os.fsencode(name), parameters)
        if model:
            llama.llama_model_free(model)
    return not any(_UNKNOWN in line for line in log_lines)


@contextmanager
def _file() -> Iterator[tuple[IO[bytes], str]]:
    """Yield a file and its name: in memory if the system can, as a disk may be read-only."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("core-gguf"), "wb") as memory:
            yield memory, f"/proc/self/fd/{memory.fileno()}"
    else:
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            yield file.file, file.name


def _named_only(architecture: str) -> bytes:
    """Return a GGUF file (version 3) with one key and no tensors."""
    key = _text("general.architecture") + struct.pack("<I", _STRING) + _text(architecture)
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def refusal(path: str | os.PathLike[str]) -> str | None:
    """Return the reason why this plugin cannot load the model; None if its header shows none."""
    try:
        probe(path)
    except CoreError as error:
        return str(error)
    return None


def probe(path: str | os.PathLike[str]) -> tuple[ModelFiles, ModelHeader]:
    """Return the files and the header of a model that can be loaded.

    Raises the errors of `find_files` and `read_header`, `InvalidModelError` for a renamed file of a
    split model, `UnsupportedModelError` for its architecture, `TokenizerError` if the file has no
    tokenizer.
    """
    files = find_files(path)
    header = read_header(files.first)
    count = header.metadata.get("split.count")
    if isinstance(count, int) and count > 1 and count != len(files.all):
        raise InvalidModelError(
            f"{files.first} is one of {count} files of a split model (split.count), but is not "
            f"named so. Rename all of them: NAME-00001-of-{count:05}.gguf."
        )
    if reason := architecture_refusal(header):
        raise UnsupportedModelError(f"{files.first} cannot be loaded: {reason}.")

    if header.metadata.get("tokenizer.ggml.model") in (None, "no_vocab") or not header.vocab_size:
        raise TokenizerError(
            f"{files.first} has no tokenizer (tokenizer.ggml.model and .tokens). Convert the "
            "model again, with its tokenizer files in the same directory."
        )
    return files, header
