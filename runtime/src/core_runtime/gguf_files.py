"""From a path to the GGUF file to open: a file, the first of a split, or a directory with one.

Split files are named ``NAME-00001-of-00003.gguf``; llama.cpp finds the others from the first
(https://github.com/ggml-org/llama.cpp/tree/master/tools/gguf-split).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from core.errors import InvalidModelError, ModelNotFoundError
from core.models.files import is_gguf_name, model_formats, resolve_path, typed_errors
from core.models.gguf import SHARD

_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The file to open, and all files of the model in order; sizes in bytes."""

    first: Path
    all: tuple[Path, ...]

    @property
    def size(self) -> int:
        """The bytes that the weights take, on disk and in memory."""
        return sum(path.stat().st_size for path in self.all)


def find_files(path: str | os.PathLike[str]) -> ModelFiles:
    """Return the model at ``path``.

    Raises `ModelNotFoundError`, `ModelAccessError`, and `InvalidModelError`: several models, a
    shard that is missing or not the first, a file that is not a GGUF file.
    """
    resolved = resolve_path(path)
    location = Path(resolved)
    with typed_errors(resolved):
        if not location.is_dir():
            if "gguf" not in model_formats(resolved):
                raise ModelNotFoundError(f"{location} is not a GGUF file.")
            return _with_shards(location)
        names = sorted(name for name in os.listdir(location) if is_gguf_name(name))
    return _with_shards(_only_model(location, names))


def _only_model(directory: Path, names: list[str]) -> Path:
    """Return the first file of the only model in a directory."""
    later = {name for name in names if (shard := SHARD.match(name)) and shard["index"] != "00001"}
    firsts = [name for name in names if name not in later]
    if len(firsts) > 1:
        listed = "".join(f"\n  {directory / name}" for name in firsts)
        raise InvalidModelError(f"{directory} has several models. Pass one of them:{listed}")
    if not names:
        raise ModelNotFoundError(
            f"{directory} is not a model directory: expected a *.gguf file (mmproj-*.gguf are "
            "image encoders)."
        )
    return directory / (firsts or names)[0]


def _with_shards(path: Path) -> ModelFiles:
    shard = SHARD.match(path.name)
    if shard is None or not 1 <= int(shard["index"]) <= int(shard["count"]):
        return ModelFiles(path, (path,))

    count = int(shard["count"])
    shards = tuple(_shard(path, shard["stem"], number, count) for number in range(1, count + 1))
    missing = [file for file in shards if not file.is_file()]
    if missing:
        names = ", ".join(file.name for file in missing[:_MOST_NAMED])
        raise InvalidModelError(
            f"{path} is one of {count} files of a split model, and {len(missing)} of them are "
            f"missing ({names}). Download all of them into {path.parent}."
        )

    # llama.cpp finds the other files only from the first.
    if int(shard["index"]) != 1:
        raise InvalidModelError(
            f"{path} is not the first file of a split model. Pass the first: {shards[0]}"
        )
    return ModelFiles(path, shards)


def _shard(path: Path, stem: str, number: int, count: int) -> Path:
    return path.with_name(f"{stem}-{number:05d}-of-{count:05d}{path.suffix}")
