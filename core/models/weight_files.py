"""The safetensors files of a model directory: the model's weights, and the others.

The model's weights are the files that transformers and mlx-lm read: the files of the index, else
model.safetensors, else the numbered shards, else ``model*.safetensors``, like mlx-lm.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from core.errors import InvalidModelError
from core.models.files import read_json_object

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
