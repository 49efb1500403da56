"""A GGUF file for conversion: its metadata, and its tensors as float32 arrays.

Files with a known checksum are verified.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import ConversionError, InvalidModelError, ModelNotFoundError
from core.models.discovery import discover
from core.models.gguf import GgufTensor, read_gguf
from core.models.locating import locate
from core_mlx_native.convert.metadata import Metadata

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def gguf_of(model: str | os.PathLike[str]) -> Path:
    """Return the GGUF file of a model.

    ``model`` is a file, a directory with one, or a name listed by `discover`.

    Raises `ModelNotFoundError`, and `InvalidModelError` for a directory with several.
    """
    location = locate(model)
    if not os.path.isdir(location):
        return Path(location)
    paths = [entry.path for entry in discover(location, 0) if entry.format == "gguf"]
    if len(paths) == 1:
        return Path(paths[0])
    if paths:
        listed = "".join(f"\n  {path}" for path in paths)
        raise InvalidModelError(f"{location} contains several models. Pass one of them:{listed}")
    raise ModelNotFoundError(
        f"No GGUF file found in {location}; convert turns GGUF files into safetensors. Pass a "
        "GGUF file."
    )


class GgufSource:
    """One GGUF file. ``tensors`` maps GGUF names to tensors, in file order."""

    def __init__(self, path: Path) -> None:
        """Read the header.

        Raises `ModelNotFoundError`, `ModelAccessError`, `InvalidModelError` (not a valid GGUF file)
        or `ConversionError` (one shard of a split file, two tensors with one name).
        """
        header = read_gguf(path, arrays=True, tensors=True)
        self.path = path
        self.metadata = Metadata(header.metadata, str(path))
        self.tensors: Mapping[str, GgufTensor] = {item.name: item for item in header.tensors}
        if len(self.tensors) != len(header.tensors):
            raise self.metadata.error("two tensors have the same name")

        self._data_offset = header.data_offset
        if self.metadata.integer("split.count", 1) > 1:
            raise self.metadata.error(
                "it is one shard of a split model. Join the shards first with llama.cpp's "
                "`llama-gguf-split --merge`"
            )

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor, rows before columns; GGUF stores the columns first."""
        return tuple(reversed(self.tensors[name].shape))

    def array(self, name: str) -> NDArray[np.float32]:
        """Read one tensor, dequantised to float32, in the shape given by `shape`."""
        import numpy as np
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
        from gguf.quants import dequantize

        # A ggml type packs ``block`` numbers into ``size`` bytes.
        tensor, shape = self.tensors[name], self.shape(name)
        try:
            kind = GGMLQuantizationType(tensor.ggml_type)
            block, size = GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError):
            raise self._unknown_type(name) from None

        if 0 in (shape or (0,)) or shape[-1] % block:
            raise InvalidModelError(
                f"{self.path}: tensor {name} has the impossible shape {shape}. Download the file "
                "again."
            )

        raw = self._bytes(name, math.prod(shape) // block * size)
        try:
            values = dequantize(raw.reshape(*shape[:-1], shape[-1] // block * size), kind)
        except NotImplementedError:
            raise self._unknown_type(name) from None
        return np.ascontiguousarray(values, dtype=np.float32)

    def _bytes(self, name: str, size: int) -> NDArray[np.uint8]:
        import numpy as np

        start = self._data_offset + self.tensors[name].offset
        if start + size > self.path.stat().st_size:
            raise InvalidModelError(
                f"{self.path} is truncated: it ends inside tensor {name}. Download the file again."
            )
        return np.memmap(self.path, np.uint8, "r", start, (size,))

    def _unknown_type(self, name: str) -> ConversionError:
        return self.metadata.error(
            f"tensor {name} has ggml type {self.tensors[name].ggml_type}, which the gguf package "
            "cannot dequantise"
        )


@dataclass(frozen=True, slots=True)
class KnownSource:
    """A GGUF file by name, size in bytes and SHA-256; ``directory`` is its converted name."""

    file_name: str
    size: int
    sha256: str
    directory: str


SMOLLM2 = KnownSource(
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    98_362_432,
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "smollm2-135m-instruct",
)
GEMMA3 = KnownSource(
    "gemma-3-270m-q4_k_m.gguf",
    253_113_024,
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    "gemma-3-270m",
)
KNOWN_SOURCES = (SMOLLM2, GEMMA3)


def verified_sha256(path: Path, expected: str | None = None) -> str:
    """Return the file's SHA-256 in lower-case hex.

    Raises `ConversionError` if it is not the expected one. Without ``expected``, a file with the
    name and size of a known source must be that source.
    """
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    wanted = _known_sha256(path) or digest if expected is None else expected.lower()
    if digest != wanted:
        raise ConversionError(
            f"{path} has SHA-256 {digest}, expected {wanted}. The file is damaged or a different "
            "build: download it again, or pass the checksum you expect (--sha256, expect_sha256)."
        )
    return digest


def _known_sha256(path: Path) -> str | None:
    key = (path.name, path.stat().st_size)
    known = (source for source in KNOWN_SOURCES if (source.file_name, source.size) == key)
    return next((source.sha256 for source in known), None)
