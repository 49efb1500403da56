"""A classifier head as a value, and as a file: safetensors with metadata, without any code.

The format (github.com/huggingface/safetensors, "Format"): eight bytes with the length of a JSON
header, the header, the numbers. `load_head` checks everything in it: a file may be from anyone.

Shapes: H features, K classes, P probes.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.system import outputs
from core.system.fields import Fields, integer_in, number_in, text_in
from core.system.limited_files import FileKind, Refused, check_format, json_value
from core_learn.errors import HeadFileError
from core_learn.heads import Array

FORMAT = 1
READING = FileKind(
    "a head of infercore-learn",
    HeadFileError,
    "Learn it again, and save it with FewShot.save().",
    2**30,  # 16,000 labels of 8,192 features
)
MOST = 1e100
"""The largest number of a head: times a state, a float32, and summed, it does not overflow."""

_LENGTH = struct.Struct("<Q")
_MOST_HEADER = 1 << 24  # bytes: enough for the labels of any task, too few to exhaust memory
HEAD_KIND = outputs.Kind(
    "a head", re.compile(rb'.{8}\{"__metadata__": \{"core_learn\.format": ', re.DOTALL)
)
"""The mark of a file that `save_head` wrote."""
_TENSORS = ("weights", "bias", "probes")


@dataclass(frozen=True, slots=True)
class Head:
    """A classifier head, which `FewShot` learns: from a model's states at one layer to labels.

    ``weights`` [H, K] and ``bias`` [K] give a row's scores; the softmax of ``scale`` times these
    are its probabilities. ``probes`` [P, H] are the states of fixed texts, which identify the
    model. ``kind``, ``strength``, ``rows`` and ``accuracy`` describe the training: the last is
    measured on rows that neither the head nor its choice had seen, None if a label had too few
    texts. Raises `HeadFileError` for an invalid head: shapes that do not match, numbers that are
    not finite, or beyond `MOST`.
    """

    labels: tuple[str, ...]
    template: str
    layer: int
    num_layers: int
    weights: Array
    bias: Array
    probes: Array
    scale: float
    kind: str
    strength: float
    rows: int
    accuracy: float | None = None

    def __post_init__(self) -> None:
        with READING.errors():
            _check(self)


def save_head(head: Head, path: str | os.PathLike[str]) -> None:
    """Write a head to a file, atomically replacing an existing head.

    Raises `core.OutputError` for any other existing file, OSError if it cannot be written.
    """
    arrays = {name: np.ascontiguousarray(getattr(head, name), "<f8") for name in _TENSORS}
    facts = {
        name: getattr(head, name) for name in Head.__dataclass_fields__ if name not in _TENSORS
    }
    header: dict[str, object] = {
        "__metadata__": {"core_learn.format": str(FORMAT), "core_learn.head": json.dumps(facts)}
    }
    end = 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        header[name] = {"dtype": "F64", "shape": array.shape, "data_offsets": (start, end)}

    # Behind the header, padded to eight bytes, the numbers are aligned.
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = [_LENGTH.pack(len(text)), text, *(array.tobytes() for array in arrays.values())]
    outputs.write(path, b"".join(data), HEAD_KIND)


def load_head(path: str | os.PathLike[str]) -> Head:
    """Read a head. Raises `HeadFileError` for any other file, OSError if it cannot be read."""
    data = READING.read(path)
    with READING.named(path), READING.errors():
        header, numbers = _parted(data)
        values = _facts(header.table("__metadata__"))
        values |= {name: _tensor(header.table(name), numbers) for name in _TENSORS}
        return Head(**values)


def _parted(data: bytes) -> tuple[Fields, memoryview]:
    """Return the header and the bytes after it."""
    if len(data) < _LENGTH.size:
        raise Refused("it is too short")
    (length,) = _LENGTH.unpack_from(data)
    if length > min(_MOST_HEADER, len(data) - _LENGTH.size):
        raise Refused("its header is longer than the file, or than the limit")
    end = _LENGTH.size + length
    header = Fields(json_value(data[_LENGTH.size : end]))
    return header.only(("__metadata__", *_TENSORS)), memoryview(data)[end:]


def _facts(metadata: Fields) -> dict[str, Any]:
    written = metadata.only(("core_learn.format", "core_learn.head")).text("core_learn.format")
    check_format(int(written) if len(written) < 9 and written.isdecimal() else written, FORMAT)
    data = Fields(json_value(metadata.text("core_learn.head")))
    data.only(Head.__dataclass_fields__.keys() - set(_TENSORS))
    return {
        "labels": data.texts("labels"),
        **{name: data.text(name) for name in ("template", "kind")},
        **{name: data.integer(name) for name in ("layer", "num_layers", "rows")},
        **{name: data.number(name) for name in ("scale", "strength")},
        "accuracy": data.number("accuracy") if data.given("accuracy") else None,
    }


def _tensor(entry: Fields, numbers: memoryview) -> Array:
    place = entry.only(("dtype", "shape", "data_offsets")).place
    if entry.text("dtype") != "F64":
        raise Refused(f"{place} is not float64")
    shape = tuple(integer_in(*item, low=1) for item in entry.items("shape"))
    offsets = [integer_in(*item) for item in entry.items("data_offsets")]
    start, end = offsets if len(offsets) == 2 else (0, -1)
    if not start <= end <= len(numbers) or end - start != 8 * math.prod(shape):
        raise Refused(f"{place} is not within the file")
    return np.frombuffer(numbers[start:end], "<f8").reshape(shape).astype(np.float64)


def _check(head: Head) -> None:
    """Raise `Refused` for an invalid head."""
    for place, label in enumerate(head.labels):
        text_in(label, f"labels[{place}]")
    for name in ("template", "kind"):
        text_in(getattr(head, name), name)
    for name in ("num_layers", "rows"):
        integer_in(getattr(head, name), name)
    integer_in(head.layer, "layer", high=head.num_layers)
    number_in(head.scale, "scale", 1 / MOST, MOST)
    number_in(head.strength, "strength", 0.0)
    if head.accuracy is not None:
        number_in(head.accuracy, "accuracy", 0.0, 1.0)
    if "{text}" not in head.template:
        raise Refused("its template has no {text}")

    count, size = len(head.labels), len(head.weights)
    shapes = head.weights.shape, head.bias.shape, head.probes.shape[1:]
    if shapes != ((size, count), (count,), (size,)) or len(set(head.labels)) < max(count, 2):
        raise Refused(f"its arrays {shapes} do not match its {count} labels")
    for name in _TENSORS:
        array = getattr(head, name)
        if not np.isfinite(array).all():
            raise Refused(f"{name} has numbers that are not finite")
        if np.abs(array).max(initial=0.0) > MOST:
            raise Refused(f"{name} has numbers beyond {MOST:g}")
