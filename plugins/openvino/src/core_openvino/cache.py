"""The keys and values of all layers, in blocks: one array for each input of a body.

Shapes: B blocks of one sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov

from core_openvino.graph import keys_name, values_name

Bytes = npt.NDArray[np.uint8]
_STORED: dict[str, Any] = {"f32": np.float32, "bf16": np.uint16}  # numpy has no bfloat16


class KVCache:
    """The arrays of ``count`` blocks, as zeros, which take no memory until they are written.

    ``precision`` is OpenVINO's name of their type, ``block`` the shape of one block.
    """

    def __init__(self, layers: int, count: int, block: Sequence[int], precision: str) -> None:
        names = [name(layer) for layer in range(layers) for name in (keys_name, values_name)]
        self.arrays: dict[str, npt.NDArray[Any]] = {
            name: np.zeros([count, *block], _STORED[precision]) for name in names
        }
        self._is_bfloat16 = precision == "bf16"

    @property
    def block_bytes(self) -> int:
        """The bytes of one block in all layers."""
        return sum(int(array[0].nbytes) for array in self.arrays.values())

    def set_on(self, request: ov.InferRequest) -> None:
        """Make the arrays the inputs of a request, which shares their memory."""
        for name, array in self.arrays.items():
            if self._is_bfloat16:
                tensor = ov.Tensor(array, list(array.shape), ov.Type.bf16)
            else:
                tensor = ov.Tensor(array, shared_memory=True)
            request.set_tensor(name, tensor)

    def copy(self, source: int, target: int) -> None:
        """Copy one block."""
        for array in self.arrays.values():
            array[target] = array[source]

    def read(self, blocks: Sequence[int]) -> Bytes:
        """Return a copy of blocks: [B * block_bytes]."""
        parts = [array[blocks].reshape(-1).view(np.uint8) for array in self.arrays.values()]
        return np.concatenate(parts)

    def write(self, blocks: Sequence[int], state: Bytes) -> None:
        """Write what `read` returned into as many blocks."""
        place = 0
        for array in self.arrays.values():
            part = array[0].nbytes * len(blocks)
            values = state[place : place + part].view(array.dtype)
            array[blocks] = values.reshape(len(blocks), *array.shape[1:])
            place += part
