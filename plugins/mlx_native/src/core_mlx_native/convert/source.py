"""A GGUF file opened for conversion: its metadata, and its tensors as float32 arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import ConversionError, InvalidModelError
from core.gguf_header import GgufTensor, read_gguf
from core_mlx_native.convert.metadata import Metadata

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Source:
    """One GGUF file. ``tensors`` by GGUF name, in file order."""

    def __init__(self, path: Path) -> None:
        """Read the header.

        Raises `ModelNotFoundError`, `ModelAccessError`, `InvalidModelError` (not a sound GGUF
        file) or `ConversionError` (one part of a split file, two tensors of one name).
        """
        header = read_gguf(path, arrays=True, tensors=True)
        self.path = path
        self.metadata = Metadata(header.metadata, str(path))
        self.tensors: Mapping[str, GgufTensor] = {item.name: item for item in header.tensors}
        if len(self.tensors) != len(header.tensors):
            raise self.metadata.error("it holds two tensors of one name")
        self._data_offset = header.data_offset
        if self.metadata.integer("split.count", 1) > 1:
            raise self.metadata.error(
                "it is one part of a split model; join the parts first, with llama.cpp's "
                "`llama-gguf-split --merge`"
            )

    def shape(self, name: str) -> tuple[int, ...]:
        """Rows before columns, as numpy has it; GGUF stores the fastest dimension first."""
        return tuple(reversed(self.tensors[name].shape))

    def array(self, name: str) -> NDArray[np.float32]:
        """One tensor, dequantised."""
        import numpy as np
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
        from gguf.quants import dequantize

        tensor, shape = self.tensors[name], self.shape(name)
        try:
            kind = GGMLQuantizationType(tensor.ggml_type)
            block, size = GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError):
            raise self._unknown_type(name) from None
        if 0 in (shape or (0,)) or shape[-1] % block:
            raise InvalidModelError(f"{self.path}: tensor {name} has the impossible shape {shape}.")
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
                f"{self.path} ends inside tensor {name}: it is cut off. Fetch the file again."
            )
        return np.memmap(self.path, np.uint8, "r", start, (size,))

    def _unknown_type(self, name: str) -> ConversionError:
        return self.metadata.error(
            f"tensor {name} has the ggml type {self.tensors[name].ggml_type}, "
            "which the gguf package cannot dequantise"
        )
