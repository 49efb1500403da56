"""A LoRA adapter in GGUF: found and checked against its model before anything is loaded."""

from __future__ import annotations

import os
from pathlib import Path

from core.errors import InvalidModelError
from core.gguf_header import read_gguf
from core.model_files import resolve_path, typed_errors
from core_llama_cpp.adapter_tensors import check_adapter
from core_llama_cpp.header import ModelHeader


def find_adapter(path: str | os.PathLike[str] | None, header: ModelHeader) -> Path | None:
    """The adapter's file: ``path`` itself, or the only ``*.gguf`` in that directory.

    Raises `ModelNotFoundError`, `ModelAccessError`, and `InvalidModelError` for a file that is no
    LoRA adapter in GGUF, or one for another architecture; and what `check_adapter` raises.
    """
    if path is None:
        return None
    location = Path(resolve_path(path))
    with typed_errors(str(location)):
        file = _only_file(location) if location.is_dir() else location
        metadata = read_gguf(file).metadata
    if metadata.get("general.type") != "adapter" or metadata.get("adapter.type") != "lora":
        raise InvalidModelError(
            f"{file} is not a LoRA adapter in GGUF (general.type 'adapter', adapter.type 'lora'). "
            "llama.cpp's convert_lora_to_gguf.py makes one."
        )
    made_for = metadata.get("general.architecture")
    if made_for != header.architecture:
        raise InvalidModelError(
            f"The adapter {file} was made for the architecture {made_for!r:.80}, and "
            f"{header.path} is {header.architecture!r}. Give an adapter of this model."
        )
    with typed_errors(str(location)):
        check_adapter(file, header)
    return file


def _only_file(directory: Path) -> Path:
    files = sorted(path for path in directory.iterdir() if path.suffix.lower() == ".gguf")
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        raise InvalidModelError(
            f"{directory} has to hold one *.gguf adapter, and holds {names}. Give its file."
        )
    return files[0]
