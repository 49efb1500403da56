"""A checkpoint's tensors as float32 numpy arrays, each read when it is taken.

For engines without a tensor library of their own: safetensors, also bfloat16 and MLX's packed
integers; `core_runtime.gguf.arrays` reads GGUF. Formats: `quantization`, and
https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

import json
import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from core.models.files import open_model_file
from core_runtime.checkpoint.config import ModelConfig
from core_runtime.checkpoint.fields import JsonFiles
from core_runtime.checkpoint.files import Plain, Shape, read_header, tensor_files
from core_runtime.checkpoint.names import plain_name
from core_runtime.checkpoint.own_files import RECORD
from core_runtime.checkpoint.quantization import Packing
from core_runtime.checkpoint.tensors import checked_tensors, expected_tensors

Floats = npt.NDArray[np.float32]
_PARTS = ("weight", "scales", "biases")
_KINDS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "U32": "<u4"}


class TensorArrays(ABC):
    """The tensors of a model by transformers' names; norms include Gemma's +1.

    ``shapes`` are all of them, with linear weights as [out, in].
    """

    def __init__(self, config: ModelConfig) -> None:
        self.shapes: Mapping[str, Shape] = expected_tensors(config)
        self._norm_offset = config.family.norm_offset

    def take(self, name: str) -> Floats:
        """Return a tensor, linear weights as [out, in]; it may be a view of the file."""
        tensor = np.ascontiguousarray(self._read(name), np.float32)
        if self._norm_offset and name.removesuffix(".weight").endswith("norm"):
            return tensor + np.float32(1)
        return tensor

    @property
    @abstractmethod
    def rounded(self) -> bool:
        """True if no matrix is stored at more than 16 bits: bfloat16 then loses little."""

    @abstractmethod
    def _read(self, name: str) -> Floats: ...


class _Place(NamedTuple):
    """The place of one tensor's bytes."""

    path: Path
    kind: str
    shape: tuple[int, ...]
    start: int


class StoredTensors:
    """The tensors of safetensors files, as they are stored, by their plain names.

    ``header``: their dtypes and shapes. Raises `core.InvalidModelError` for broken files.
    """

    def __init__(self, files: list[Path], plain_name: Plain = plain_name) -> None:
        self.header = read_header(files, plain_name)
        self._places = {
            name: place for path in files for name, place in _places(path, plain_name).items()
        }

    def read(self, name: str) -> npt.NDArray[Any]:
        """Return a tensor, bfloat16 as float32; it may be a view of the file."""
        path, kind, shape, start = self._places[name]
        array = np.memmap(path, np.dtype(_KINDS[kind]), "r", start, shape or (1,)).reshape(shape)
        if kind == "BF16":
            return (array.astype(np.uint32) << 16).view(np.float32)
        return np.asarray(array)

    def wide_bytes(self, names: Iterable[str]) -> int:
        """Return the bytes of the matrices among these that have more than 16 bits a number."""
        tensors = [self.header[name] for name in names]
        return sum(
            math.prod(shape) * 4 for kind, shape in tensors if kind == "F32" and len(shape) == 2
        )


class SafetensorArrays(TensorArrays):
    """The tensors of a safetensors directory.

    Raises `core.InvalidModelError` that lists missing, extra and mis-shaped tensors.
    """

    def __init__(self, directory: Path, config: ModelConfig) -> None:
        self._directory = directory
        self._stored = StoredTensors(tensor_files(directory))
        header = self._stored.header
        config, self._packings = checked_tensors(header, config, directory, self._equal)
        super().__init__(config)

    @property
    def rounded(self) -> bool:
        """See `TensorArrays`."""
        size = self._stored.wide_bytes(self.shapes)
        return not size or _converted_from(self._directory) < size

    def _read(self, name: str) -> Floats:
        layer = name.removesuffix(".weight")
        if layer not in self._packings:
            return self._stored.read(name)
        words, scales, biases = (self._stored.read(f"{layer}.{part}") for part in _PARTS)
        return unpacked(words, scales, biases, self._packings[layer])

    def _equal(self, name: str, other: str) -> bool:
        return np.array_equal(self._stored.read(name), self._stored.read(other))


def unpacked(
    words: npt.NDArray[np.uint32], scales: Floats, biases: Floats, packing: Packing
) -> Floats:
    """Return ``scale * integer + bias`` of a matrix that MLX packed: [rows, columns].

    The integers of a row are one stream of bits, the lowest first.
    """
    rows = len(words)
    stream = np.ascontiguousarray(words, "<u4").view(np.uint8).reshape(rows, -1)
    if packing.bits == 8:
        integers = stream
    else:
        bits = np.unpackbits(stream, axis=1, bitorder="little").reshape(rows, -1, packing.bits)
        integers = bits @ (1 << np.arange(packing.bits, dtype=np.uint8)).astype(np.uint8)
    grouped = integers.reshape(rows, -1, packing.group_size).astype(np.float32)
    scales, biases = (np.asarray(part, np.float32)[..., None] for part in (scales, biases))
    dense: Floats = (grouped * scales + biases).reshape(rows, -1)
    return dense


def _converted_from(directory: Path) -> float:
    """Return the size in bytes of the GGUF file that a directory was converted from.

    It was rounded if it is smaller than the float32 tensors. Infinity without a conversion.
    """
    source = JsonFiles(directory).read_if_there(RECORD).get("source")
    size = source.get("size") if isinstance(source, Mapping) else None
    return size if isinstance(size, int) else math.inf


def _places(path: Path, plain_name: Plain) -> dict[str, _Place]:
    """Return where the tensors of one file are; `read_header` has checked the file."""
    with open_model_file(path) as file:
        (size,) = struct.unpack("<Q", file.read(8))
        entries: dict[str, Any] = json.loads(file.read(size))
    entries.pop("__metadata__", None)
    data = 8 + size
    return {
        plain: _Place(path, entry["dtype"], tuple(entry["shape"]), data + entry["data_offsets"][0])
        for name, entry in entries.items()
        if (plain := plain_name(name))
    }
