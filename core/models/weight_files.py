"""The weight files of a model: which of a directory's files they are, and their damage.

A safetensors model's weights are the files that transformers and mlx-lm read: the files of the
index, else model.safetensors, else the numbered shards, else ``model*.safetensors``, like mlx-lm.

Damage is described in a few words, as far as headers show it. Weights are not read: a header gives
the length of its file, a name the number of files, and other data saved in a model's place is
recognised by its first bytes.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, BinaryIO

from core.errors import CoreError, InvalidModelError, ModelAccessError
from core.models.files import open_model_file, read_json_object, typed_errors
from core.models.gguf import TENSOR_TYPES, GgufHeader

INDEX = "model.safetensors.index.json"
_SINGLE, _SUFFIX = "model.safetensors", ".safetensors"
_SHARD = re.compile(r"(?P<stem>.*)-\d{5}-of-(?P<count>\d{5})\.safetensors")
NO_WEIGHTS, _TWO = "no weights", "two sets of weights"  # problems start with these
_MAX_SHARDS = 10_000  # more than any model has; the number is from a file's name

STRANGERS: Mapping[str, str] = {
    "adapters.safetensors": "an adapter in mlx-lm's layout",
    "*_adapters.safetensors": "an adapter checkpoint saved by mlx_lm.lora",
    "adapter_model*.safetensors": "an adapter in PEFT's layout",
    "checkpoint-*.safetensors": "a training checkpoint of `infer-cli lora train`",
    "consolidated*.safetensors": "Mistral's own format, the same weights under other names",
    "*optim*.safetensors": "an optimizer's state",
    "scheduler*.safetensors": "a learning rate schedule's state",
    "random_states*.safetensors": "the state of a random generator",
    "*mm_projector*.safetensors": "the projector of an image encoder",
    "vision_*.safetensors": "an image encoder",
    "medusa*.safetensors": "heads that draft tokens",
    "mtp*.safetensors": "layers that draft tokens",
    "model.*.safetensors": "a variant of the weights (such as fp16), read only if alone",
}
"""The kinds of files that are not the model's, by pattern."""

UNKNOWN_FILE = "neither in the index nor called as a model's weights are"
ADAPTERS = ("adapters.safetensors", "adapter_model.safetensors")


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """The safetensors files of one directory, by name.

    ``own``: the files of the model, in order; ``missing``: the ones of them that do not exist;
    ``others``: each other file, with its kind; ``problem``: the problem of the set, in a few words.
    """

    own: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


def weight_files(directory: str, names: Iterable[str]) -> WeightFiles:
    """Separate the model's weights from the other ``names`` in a directory.

    Raises `InvalidModelError` for an index that is broken, `ModelAccessError` for one that may not
    be read.
    """
    there = {name for name in names if name.endswith(_SUFFIX)}
    index = os.path.join(directory, INDEX)
    indexed = _indexed(index) if os.path.lexists(index) else set()
    own, problem = (indexed, "") if indexed else _called(there)
    if indexed and _SINGLE in there - indexed and indexed <= there:
        problem = f"{_TWO}, {_SINGLE} and the files of {INDEX}"

    others = {name: _stranger(name) for name in sorted(there - own)}
    if not own and not problem:
        problem = _nothing(others)
    return WeightFiles(tuple(sorted(own)), tuple(sorted(own - there)), others, problem)


def next_step(problem: str) -> str:
    """Return what to do about the ``problem`` of a directory's weight files; empty for others."""
    if problem.startswith(_TWO):
        return "Move one of them out of the directory."
    if problem.startswith(NO_WEIGHTS):
        return f"Download the model's weights: the files of {INDEX}, {_SINGLE}, or numbered shards."
    return ""


def _indexed(index: str) -> set[str]:
    shards = read_json_object(index).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise InvalidModelError(f"{index} lists no files. Download it again.")
    if not shards:
        raise InvalidModelError(f"{index} lists no files. Download it again.")
    return set(shards.values())


def _called(there: set[str]) -> tuple[set[str], str]:
    """Return the weights by their names alone, and the problem with them."""
    if _SINGLE in there:
        return {_SINGLE}, ""

    # Numbered shards; if all exist, no index is needed.
    numbered = {
        int(shard["count"])
        for shard in map(_SHARD.fullmatch, there)
        if shard and shard["stem"] == "model"
    }
    if len(numbered) > 1:
        return set(), f"{_TWO}, of {' and '.join(map(str, sorted(numbered)))} shards"
    for count in numbered:
        last = min(count, _MAX_SHARDS)
        return {f"model-{n:05}-of-{count:05}{_SUFFIX}" for n in range(1, last + 1)}, ""

    # The names that mlx-lm reads, and the names that its first versions read.
    for beginning in ("model", "weight"):
        if own := {name for name in there if name.startswith(beginning)}:
            return own, ""
    return set(), ""


def _stranger(name: str) -> str:
    known = (what for pattern, what in STRANGERS.items() if fnmatchcase(name, pattern))
    return next(known, UNKNOWN_FILE)


def _nothing(others: Mapping[str, str]) -> str:
    """Return the problem of a directory that has no weights of a model."""
    if not others:
        return NO_WEIGHTS
    name, what = next(iter(others.items()))
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return f"{NO_WEIGHTS} of a model, only {name} ({what}){more}"


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
    ending = next((suffix for suffix in _UNFINISHED if lower.endswith(suffix)), "")
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
