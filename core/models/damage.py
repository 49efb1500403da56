"""Damage to the files of a model, in a few words, as far as headers show it.

Weights are not read: a header gives the length of its file, a name the number of files, and other
data saved in a model's place is recognised by its first bytes.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from core.errors import CoreError, ModelAccessError
from core.models.files import open_model_file, typed_errors
from core.models.gguf import GgufHeader
from core.models.quantisation import TENSOR_TYPES

INCOMPLETE = "incomplete download"
NO_PERMISSION = "no permission to read it"
BROKEN_HEADER = "broken header"
_UNFINISHED = (
    *(".part", ".partial", ".crdownload", ".incomplete", ".download", ".opdownload", ".aria2"),
    *(".downloadinprogress", "-partial"),  # llama.cpp's, Ollama's
)
_MAX_HEADER_BYTES = 32 * 2**20
_MAX_FILES = 4096  # of one model, that are looked into
_INSTEAD = {
    b"version https://git-lfs": "a Git LFS pointer",
    b"<!doctype html": "an HTML page",
    b"<html": "an HTML page",
    b"<?xml": "an XML page",
    b"{": "JSON text",
}


def finished_name(name: str) -> str:
    """Return the name that a file has after its download.

    Empty if it is not a partial download.
    """
    lower = name.lower()
    ending = next((each for each in _UNFINISHED if lower.endswith(each)), "")
    return name[: -len(ending)] if ending else ""


def missing_shards(missing: int, count: int) -> str:
    """Return the description of missing files of a model."""
    return f"{missing} of {count} shards missing"


def unreadable(error: CoreError) -> str:
    """Return the description of a file whose header cannot be read."""
    return NO_PERMISSION if isinstance(error, ModelAccessError) else BROKEN_HEADER


def not_gguf(path: str) -> str:
    """Return what a file named as GGUF is instead; empty for a GGUF file.

    Raises `ModelError` for a file that cannot be read.
    """
    with open_model_file(path) as file, typed_errors(path):
        words = _instead(file)
        return words or ("" if file.read(4) == b"GGUF" else "not a GGUF file")


def _instead(file: BinaryIO) -> str:
    """Return what a file is instead of weights, which start with a number and so with zeros."""
    head = file.read(64)
    file.seek(0)
    if not head:
        return "an empty file"
    if b"\0" in head[:8]:
        return ""
    start = head.lstrip().lower()
    return next((words for begins, words in _INSTEAD.items() if start.startswith(begins)), "")


def cut_gguf(path: str, header: GgufHeader) -> str:
    """Return the description of a GGUF file that ends before its last tensor; else empty."""
    end = max((_end(header, index) for index in range(len(header.tensors))), default=0)
    return _cut(os.stat(path).st_size, end)


def _end(header: GgufHeader, index: int) -> int:
    tensor = header.tensors[index]
    _, block, size = TENSOR_TYPES.get(tensor.ggml_type, ("", 1, 0))
    return header.data_offset + tensor.offset + math.prod(tensor.shape) // block * size


def _cut(size: int, needed: int) -> str:
    if size >= needed:
        return ""
    if needed > _LARGEST:
        return BROKEN_HEADER
    scale, unit = next((pair for pair in _UNITS if needed >= pair[0]), (1, "B"))
    if scale == 1:
        return f"truncated ({size} of {needed} B)"
    return f"truncated ({size / scale:.1f} of {needed / scale:.1f} {unit})"


_LARGEST = 2**62  # no file is larger; a header that says so is not a header
_UNITS = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


@dataclass(frozen=True, slots=True)
class Weights:
    """The problem of a model's safetensors files, and the type of most of its weights."""

    problem: str = ""
    stored: str = ""


def look_at_safetensors(directory: str, names: Sequence[str]) -> Weights:
    """Check the headers of a model's safetensors files, which have these ``names``."""
    stored: Counter[str] = Counter()
    for name in sorted(names)[:_MAX_FILES]:
        try:
            problem = _look_at(os.path.join(directory, name), stored)
        except CoreError as error:
            problem = unreadable(error)
        if problem:
            return Weights(problem if len(names) == 1 else f"{problem}: {name}")
    return Weights(stored=stored.most_common(1)[0][0] if stored else "")


def _look_at(path: str, stored: Counter[str]) -> str:
    with open_model_file(path) as file, typed_errors(path):
        size = os.fstat(file.fileno()).st_size
        if words := _instead(file):
            return words
        length = int.from_bytes(file.read(8), "little")
        if length > _MAX_HEADER_BYTES:
            return BROKEN_HEADER
        if 8 + length > size:
            return _cut(size, 8 + length)
        header = file.read(length)

    # Where the last tensor ends, and how many bytes there are of each type.
    try:
        tensors = [entry for name, entry in json.loads(header).items() if name != "__metadata__"]
        end = max((entry["data_offsets"][1] for entry in tensors), default=0)
        _count(tensors, stored)
    except _NO_HEADER:
        return BROKEN_HEADER
    return _cut(size, 8 + length + end)


# Errors of JSON that is not a header.
_NO_HEADER = (
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
    RecursionError,
)


def _count(tensors: Iterable[Any], stored: Counter[str]) -> None:
    for entry in tensors:
        start, end = entry["data_offsets"]
        stored[str(entry["dtype"])[:20]] += end - start
