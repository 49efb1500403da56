"""Models below a directory, read from config.json and GGUF headers; weights are not opened.

Whatever is broken or unreadable on the way is skipped or described by what is known, so that one
bad model never hides another.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from core.errors import CoreError
from core.models.files import is_gguf_name, read_json_object, resolve_path, typed_errors
from core.models.gguf import NO_LANGUAGE_MODEL, SHARD, read_gguf
from core.types import DiscoveredModel

_GGUF_KEYS = ("general.architecture", "general.file_type")

# llama.cpp's LLAMA_FTYPE numbers: nominal bits of a weight, and weights that share a scale.
_FILE_TYPES = {
    **dict.fromkeys((0, 1, 32), (0, 0)),  # F32, F16, BF16
    **dict.fromkeys((2, 3, 25, 38), (4, 32)),  # Q4_0, Q4_1, IQ4_NL, MXFP4
    **dict.fromkeys((8, 9), (5, 32)),
    7: (8, 32),
    **dict.fromkeys((24, 31), (1, 256)),  # IQ1_S, IQ1_M
    **dict.fromkeys((10, 19, 20, 21, 28, 29, 36, 37), (2, 256)),  # Q2_K, IQ2, TQ1_0, TQ2_0
    **dict.fromkeys((11, 12, 13, 22, 23, 26, 27), (3, 256)),  # Q3_K, IQ3
    **dict.fromkeys((14, 15, 30), (4, 256)),  # Q4_K, IQ4_XS
    **dict.fromkeys((16, 17), (5, 256)),
    18: (6, 256),
    39: (4, 64),  # NVFP4
    40: (1, 128),  # Q1_0
}
_GUESSED = 1024  # a flag on top of the file type


@dataclass(frozen=True, slots=True)
class _Directory:
    path: str
    real: str  # without links, so that none is visited twice
    is_link: bool = False


def discover(
    base_dir: str | os.PathLike[str], depth: int = 1, source: str = "directory"
) -> list[DiscoveredModel]:
    """Models in ``base_dir`` and ``depth`` levels of directories below it, sorted by path.

    A ``base_dir`` that is itself a model comes first. Hidden directories are passed over; links
    to directories are followed, each target once. Raises `ModelNotFoundError` and
    `ModelAccessError` when ``base_dir`` itself cannot be listed, and nothing else.
    """
    base = resolve_path(base_dir)
    with typed_errors(base):
        is_file = not stat.S_ISDIR(os.stat(base).st_mode)
        os.listdir(os.path.dirname(base) if is_file else base)
    if is_file:
        siblings = _listing(os.path.dirname(base))
        return [model for model in _gguf_models(siblings, source) if model.path == base]
    found = [model for entries in _walk(base, depth) for model in _models_among(entries, source)]
    return sorted(found, key=lambda model: model.path)


def _walk(base: str, depth: int) -> Iterator[list[os.DirEntry[str]]]:
    # Level by level, links last in each: a directory is met first where it is nearest, and real.
    level = [_Directory(base, os.path.realpath(base))]
    seen: set[str] = set()

    for remaining in range(depth, -1, -1):
        below: list[_Directory] = []
        if not level:
            return

        for directory in level:
            if directory.real in seen:
                continue
            seen.add(directory.real)
            entries = _listing(directory.path)
            yield entries
            if remaining:
                below += _subdirectories(directory, entries)

        level = sorted(below, key=lambda directory: (directory.is_link, directory.path))


def _listing(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError:
        return []


def _subdirectories(parent: _Directory, entries: list[os.DirEntry[str]]) -> Iterator[_Directory]:
    for entry in entries:
        if _is_directory(entry):
            is_link = entry.is_symlink()
            real = os.path.join(parent.real, entry.name)
            yield _Directory(entry.path, os.path.realpath(real) if is_link else real, is_link)


def _models_among(entries: list[os.DirEntry[str]], source: str) -> Iterator[DiscoveredModel]:
    has_config = any(e.name == "config.json" and _size(e) is not None for e in entries)
    tensors = [entry for entry in entries if entry.name.endswith(".safetensors")]
    if has_config and tensors:
        yield from _safetensors_model(tensors, source)
    yield from _gguf_models(entries, source)


def _safetensors_model(tensors: list[os.DirEntry[str]], source: str) -> Iterator[DiscoveredModel]:
    sizes = [size for entry in tensors if (size := _size(entry)) is not None]
    path = os.path.dirname(tensors[0].path)
    if sizes:
        config = _config(path)
        bits, group = _quantisation(config)
        yield DiscoveredModel(
            path, _model_type(config), bits, group, len(sizes), "safetensors", sum(sizes), source
        )


def _config(directory: str) -> dict[str, object]:
    try:
        return read_json_object(os.path.join(directory, "config.json"))
    except CoreError:
        return {}


def _model_type(config: dict[str, object]) -> str:
    for candidate in (config, config.get("text_config")):
        if isinstance(candidate, dict):
            name = candidate.get("model_type")
            if isinstance(name, str) and name:
                return name
    return ""


def _quantisation(config: dict[str, object]) -> tuple[int, int]:
    for key in ("quantization", "quantization_config"):  # MLX's name, transformers' name
        settings = config.get(key)
        if isinstance(settings, dict) and "bits" in settings:
            return _count(settings["bits"]), _count(settings.get("group_size"))
    return 0, 0


def _count(value: object) -> int:
    return value if isinstance(value, int) and value is not True and value > 0 else 0


def _gguf_models(entries: list[os.DirEntry[str]], source: str) -> Iterator[DiscoveredModel]:
    sets: dict[tuple[str, int], list[os.DirEntry[str]]] = {}
    for entry in entries:
        if is_gguf_name(entry.name):
            shard = SHARD.match(entry.name)
            key = (shard["stem"], int(shard["count"])) if shard else (entry.name, 1)
            sets.setdefault(key, []).append(entry)
    for (_, count), files in sets.items():
        sizes = [size for entry in files if (size := _size(entry)) is not None]
        if len(sizes) == count:  # a set that lacks a shard cannot be loaded
            first = min(entry.path for entry in files)
            yield from gguf_model(first, source, count, sum(sizes))


def gguf_model(path: str, source: str, num_files: int, size: int) -> Iterator[DiscoveredModel]:
    """The language model in a GGUF file, if it is one; ``size`` is in bytes."""
    try:
        metadata = read_gguf(path, only=_GGUF_KEYS).metadata
    except CoreError:
        metadata = {}
    architecture = metadata.get("general.architecture")
    if architecture == "clip" or metadata.get("general.type") in NO_LANGUAGE_MODEL:
        return
    model_type = architecture if isinstance(architecture, str) else ""
    file_type = metadata.get("general.file_type")
    number = file_type & ~_GUESSED if isinstance(file_type, int) else 0
    bits, group = _FILE_TYPES.get(number, (0, 0))
    yield DiscoveredModel(path, model_type, bits, group, num_files, "gguf", size, source)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _size(entry: os.DirEntry[str]) -> int | None:
    try:
        return entry.stat().st_size if entry.is_file() else None
    except OSError:
        return None
