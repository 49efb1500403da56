"""A GGUF file: its metadata, and its tensors as float32 arrays or as they are stored.

The packages gguf and numpy are imported when a tensor is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import CoreError, InvalidModelError
from core.models.gguf import GgufTensor, read_gguf
from core_runtime.gguf.metadata import CONVERT, Metadata, Purpose

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGMLQuantizationType
    from numpy.typing import NDArray


class GgufSource:
    """One GGUF file. ``tensors`` maps GGUF names to tensors, in file order."""

    def __init__(self, path: Path, purpose: Purpose = CONVERT) -> None:
        """Read the header.

        Raises `ModelNotFoundError`, `ModelAccessError`, `InvalidModelError` (not a valid GGUF file)
        or the error of ``purpose`` (one shard of a split file, two tensors with one name).
        """
        header = read_gguf(path, arrays=True, tensors=True)
        self.path = path
        self.metadata = Metadata(header.metadata, str(path), purpose)
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
        from gguf.quants import dequantize

        kind, blocks = self.blocks(name)
        try:
            values = dequantize(blocks, kind)
        except NotImplementedError:
            raise self._unknown_type(name) from None
        return np.ascontiguousarray(values, dtype=np.float32)

    def blocks(self, name: str) -> tuple[GGMLQuantizationType, NDArray[np.uint8]]:
        """Return the type of one tensor, and its bytes as the file has them, row by row."""
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

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
        return kind, raw.reshape(*shape[:-1], shape[-1] // block * size)

    def _bytes(self, name: str, size: int) -> NDArray[np.uint8]:
        import numpy as np

        start = self._data_offset + self.tensors[name].offset
        if start + size > self.path.stat().st_size:
            raise InvalidModelError(
                f"{self.path} is truncated: it ends inside tensor {name}. Download the file again."
            )
        return np.memmap(self.path, np.uint8, "r", start, (size,))

    def _unknown_type(self, name: str) -> CoreError:
        return self.metadata.error(
            f"tensor {name} has ggml type {self.tensors[name].ggml_type}, which the gguf package "
            "cannot dequantise"
        )
