"""A head as a value, and as a file: safetensors with its metadata, and nothing that runs.

The file is the format's own (github.com/huggingface/safetensors, "Format"): eight bytes with the
length of a JSON header, the header, the numbers. What `load_head` finds in it is checked before it
is believed: a file may come from anybody.

Shapes: H features, K classes, P probes.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from core.system import outputs
from core_learn.errors import HeadFileError
from core_learn.heads import Array

FORMAT = 1
_LENGTH = struct.Struct("<Q")
_MOST_HEADER = 1 << 24  # bytes: the labels of any task, and no attack on the memory
HEAD_KIND = outputs.Kind(
    "a head", re.compile(rb'.{8}\{"__metadata__": \{"core_learn\.format": ', re.DOTALL)
)
"""How the file of a head is known to be one that `save_head` wrote."""
_TENSORS = ("weights", "bias", "probes")


@dataclass(frozen=True, slots=True)
class Head:
    """What `FewShot` learns: it makes labels of a model's states at one layer.

    ``weights`` [H, K] and ``bias`` [K] make a row's scores, of which the softmax, ``scale`` times,
    is its probabilities. ``probes`` [P, H] are the states of fixed texts, by which a model is known
    again. ``kind``, ``strength``, ``accuracy`` (of rows that were left out, None where there were
    too few) and ``rows`` say how it came about.
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


def save_head(head: Head, path: str | os.PathLike[str]) -> None:
    """Write a head to a file, in one step in the place of an earlier head's.

    Raises `core.OutputError` for a file of anything else, OSError where it cannot be written.
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
    """Read a head. Raises `HeadFileError` for any other file, OSError for one not to be read."""
    shown = os.fspath(path)
    data = Path(path).read_bytes()
    try:
        header, numbers = _parted(data)
        facts = _facts(header)
        arrays = {name: _tensor(header, name, numbers) for name in _TENSORS}
        return _head(facts, arrays)
    except _NewerError as error:
        raise HeadFileError(f"{shown!r}: {error}") from None
    except (ArithmeticError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise HeadFileError(
            f"{shown!r} is no head that core-learn has written, or it is broken: "
            f"{type(error).__name__}: {error}. Learn it again, and save it with FewShot.save()."
        ) from None


class _NewerError(Exception):
    """The file is of a format that this version does not know."""


def _parted(data: bytes) -> tuple[Mapping[str, Any], bytes]:
    """The header and the bytes behind it."""
    if len(data) < _LENGTH.size:
        raise ValueError("it is too short")
    (length,) = _LENGTH.unpack_from(data)
    if length > min(_MOST_HEADER, len(data) - _LENGTH.size):
        raise ValueError("its header is longer than the file")
    end = _LENGTH.size + length
    header = json.loads(data[_LENGTH.size : end])
    if not isinstance(header, dict):
        raise TypeError("its header is no table")
    return header, data[end:]


def _facts(header: Mapping[str, Any]) -> dict[str, Any]:
    metadata = header["__metadata__"]
    written = int(metadata["core_learn.format"])
    if written > FORMAT:
        raise _NewerError(
            f"the head is of format {written}, and this version of core-learn reads formats up to "
            f"{FORMAT}. Install a newer core-learn."
        )
    facts = json.loads(metadata["core_learn.head"])
    if not isinstance(facts, dict):
        raise TypeError("its metadata are no table")
    return facts


def _tensor(header: Mapping[str, Any], name: str, numbers: bytes) -> Array:
    entry = header[name]
    shape, (start, end) = tuple(entry["shape"]), entry["data_offsets"]
    if entry["dtype"] != "F64" or not all(type(each) is int and each > 0 for each in shape):
        raise ValueError(f"{name} is no array of float64")
    if not 0 <= start <= end <= len(numbers) or end - start != 8 * math.prod(shape):
        raise ValueError(f"{name} does not lie in the file")
    found = np.frombuffer(numbers[start:end], "<f8").reshape(shape).astype(np.float64)
    if not np.isfinite(found).all():
        raise ValueError(f"{name} has numbers that are not finite")
    return found


def _head(facts: dict[str, Any], arrays: Mapping[str, Array]) -> Head:
    facts["labels"] = tuple(facts["labels"])
    head = Head(**{**facts, **arrays})
    kinds: tuple[tuple[object, type | tuple[type, ...]], ...] = (
        *((label, str) for label in head.labels),
        *((each, str) for each in (head.template, head.kind)),
        *((each, int) for each in (head.layer, head.num_layers, head.rows)),
        *((each, (int, float)) for each in (head.scale, head.strength)),
        (head.accuracy, (int, float, type(None))),
    )
    if not all(isinstance(value, kind) for value, kind in kinds):
        raise TypeError("its metadata have values of a wrong kind")

    count, size = len(head.labels), len(head.weights)
    shapes = head.weights.shape, head.bias.shape, head.probes.shape[1:]
    if shapes != ((size, count), (count,), (size,)) or len(set(head.labels)) < max(count, 2):
        raise ValueError(f"its arrays {shapes} do not fit its {count} labels")
    if not 0 <= head.layer <= head.num_layers or not 0 < head.scale < math.inf:
        raise ValueError("its layer or its scale is out of range")
    return head
