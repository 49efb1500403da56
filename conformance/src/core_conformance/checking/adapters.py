"""Two adapters of the model under test, and one of another model: the author's, or made here.

An author gives them as a folder with the entries ``one``, ``two`` and ``wrong``, each a file or a
directory as the backend reads it: by the setting ``adapters``, or as the folder ``adapters`` in the
model's directory. Otherwise they are made from the shapes of the model's weights: mlx-lm's
directory (``adapters.safetensors``, ``adapter_config.json``) for safetensors, llama.cpp's GGUF file
for GGUF. Their numbers are random and about as large as weights, so that outputs with and without
an adapter differ clearly.
"""

from __future__ import annotations

import json
import os
import re
import struct
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from core.models.files import open_model_file, read_config_json
from core.models.gguf import read_gguf
from core_conformance.checking.check import testable
from core_conformance.checking.scratch import scratch
from core_conformance.checking.subject import Subject

RANK, SCALE = 2, 1.0
_LAYERS = 4  # from the last one
_SAFETENSORS = re.compile(r"(.*\bmodel\.layers\.(\d+)\.(self_attn\.[qv]_proj))\.weight")
_GGUF = re.compile(r"(blk\.(\d+)\.attn_[qv]\.weight)")
_STRING, _FLOAT32, _F32, _ALIGNMENT = 8, 6, 0, 32
_NONE = (
    "no adapter of this model is known: give a folder with the adapters one, two and wrong, by "
    "adapters = ... in [tool.core-conformance] or as the folder adapters in the model's directory"
)


@dataclass(frozen=True, slots=True)
class Adapters:
    """Two that change what the model says, each otherwise, and one of another model."""

    one: str
    two: str
    wrong: str


@contextmanager
def adapters(subject: Subject) -> Iterator[Adapters]:
    """Yield the adapters while the block runs; raise `NotTestable` if the model cannot have any."""
    given = subject.adapters or os.path.join(subject.path, "adapters")
    if os.path.isdir(given) and (entries := _entries(given)) is not None:
        yield entries
        return

    with scratch() as folder:
        testable(bool(maps_of(subject.path)), _NONE)
        paths = [
            write(subject.path, folder / name, seed, extra)
            for name, seed, extra in (("one", 1, 0), ("two", 2, 0), ("wrong", 3, 32))
        ]
        yield Adapters(*map(str, paths))


def _entries(folder: str) -> Adapters | None:
    paths = {os.path.splitext(name)[0]: os.path.join(folder, name) for name in os.listdir(folder)}
    if {"one", "two", "wrong"} <= paths.keys():
        return Adapters(paths["one"], paths["two"], paths["wrong"])
    return None


@dataclass(frozen=True, slots=True)
class Map:
    """A linear map of a model, [out, in], in one of its layers; ``key`` is its name within it."""

    name: str
    layer: int
    key: str
    out: int
    inner: int


def maps_of(path: str) -> list[Map]:
    """Return some linear maps of the last layers; none if the model's names are unknown."""
    if os.path.isdir(path) and not _gguf_in(path):
        maps = _of_safetensors(path)
    else:
        maps = _of_gguf(_gguf_in(path) or path)
    last = max((one.layer for one in maps), default=0)
    return [one for one in maps if one.layer > last - _LAYERS]


def write(path: str, place: Path, seed: int, extra: int = 0) -> Path:
    """Make an adapter of the model in a directory; with ``extra``, of one so much wider."""
    dice = Random(seed)
    pairs = {one: _pair(one, dice, extra) for one in maps_of(path)}
    place.mkdir()
    if os.path.isdir(path) and not _gguf_in(path):
        _write_directory(place, pairs)
        return place
    architecture = str(read_gguf(_gguf_in(path) or path).metadata["general.architecture"])
    _write_gguf(place / "adapter.gguf", architecture, pairs)
    return place / "adapter.gguf"


Pair = tuple["array[float]", "array[float]", int]  # A^T [in, rank], B^T [rank, out], and in


def _pair(one: Map, dice: Random, extra: int) -> Pair:
    inner = one.inner + extra
    a = array("f", (dice.gauss(0, inner**-0.5) for _ in range(inner * RANK)))
    return a, array("f", (dice.gauss(0, 1) for _ in range(RANK * one.out))), inner


def _gguf_in(path: str) -> str | None:
    """Return the only GGUF file of a directory that has no safetensors."""
    if not os.path.isdir(path):
        return None
    names = sorted(os.listdir(path))
    files = [name for name in names if name.lower().endswith(".gguf")]
    own = any(name.endswith(".safetensors") for name in names)
    return None if own or not files else os.path.join(path, files[0])


def _of_safetensors(directory: str) -> list[Map]:
    config: Mapping[str, Any] = read_config_json(directory)
    text = config.get("text_config")
    hidden = (text if isinstance(text, dict) else config).get("hidden_size")
    maps = []
    for name, entry in _headers(directory).items():
        match = _SAFETENSORS.fullmatch(name)
        if match and isinstance(hidden, int):  # of packed weights the columns are not the shape's
            maps.append(Map(match[1], int(match[2]), match[3], entry["shape"][0], hidden))
    return maps


def _headers(directory: str) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    for name in sorted(os.listdir(directory)):
        if name.endswith(".safetensors"):
            with open_model_file(os.path.join(directory, name)) as file:
                (size,) = struct.unpack("<Q", file.read(8))
                tensors |= json.loads(file.read(size))
    return tensors


def _of_gguf(path: str) -> list[Map]:
    tensors = read_gguf(path, tensors=True).tensors
    matches = ((tensor, _GGUF.fullmatch(tensor.name)) for tensor in tensors)
    return [
        Map(match[1], int(match[2]), match[1], tensor.shape[1], tensor.shape[0])
        for tensor, match in matches
        if match and len(tensor.shape) == 2
    ]


def _write_directory(place: Path, pairs: Mapping[Map, Pair]) -> None:
    header: dict[str, Any] = {}
    data = bytearray()
    for one, (a, b, inner) in pairs.items():
        for part, numbers, shape in (("a", a, [inner, RANK]), ("b", b, [RANK, one.out])):
            start = len(data)
            data += numbers.tobytes()
            offsets = [start, len(data)]
            entry = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
            header[f"{one.name}.lora_{part}"] = entry
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (place / "adapters.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))

    layers = {one.layer for one in pairs}
    config = {
        "fine_tune_type": "lora",
        "num_layers": len(layers),
        "lora_parameters": {
            "rank": RANK,
            "scale": SCALE,
            "dropout": 0.0,
            "keys": sorted({one.key for one in pairs}),
        },
    }
    (place / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")


def _write_gguf(file: Path, architecture: str, pairs: Mapping[Map, Pair]) -> None:
    """Write A as [rank, in] and B as [out, rank], which GGUF's shapes name the other way round."""
    tensors: list[tuple[str, tuple[int, int], array[float]]] = []
    for one, (a, b, inner) in pairs.items():
        tensors.append((f"{one.name}.lora_a", (inner, RANK), _transposed(a, inner, RANK)))
        tensors.append((f"{one.name}.lora_b", (RANK, one.out), _transposed(b, RANK, one.out)))

    facts = {
        "general.architecture": architecture,
        "general.type": "adapter",
        "adapter.type": "lora",
    }
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(facts) + 1)
    for key, value in facts.items():
        head += _text(key) + struct.pack("<I", _STRING) + _text(value)
    head += _text("adapter.lora.alpha") + struct.pack("<If", _FLOAT32, SCALE * RANK)

    data = bytearray()
    for name, shape, numbers in tensors:
        head += _text(name) + struct.pack("<I2QIQ", 2, *shape, _F32, len(data))
        data += numbers.tobytes()
        data += bytes(-len(data) % _ALIGNMENT)
    file.write_bytes(head + bytes(-len(head) % _ALIGNMENT) + bytes(data))


def _transposed(numbers: array[float], rows: int, columns: int) -> array[float]:
    return array("f", (numbers[r * columns + c] for c in range(columns) for r in range(rows)))


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()
