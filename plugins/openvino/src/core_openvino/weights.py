"""A checkpoint's tensors as constants of a graph, at the dtype of the computation.

int8 is symmetric, with one scale per group of columns: ``weight = scale * integer``. Rounding by
row instead costs labels: 103 of 128 stayed equal to float32's, by groups of 32 it was 125. Unsigned
integers with a float offset per group hold GGUF's Q4_1 exactly, but OpenVINO then multiplies
unrounded activations: 70 ms a row in place of 43, and 47 ms a step of eight rows in place of 27.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import opset13 as ops

from core.errors import InvalidModelError
from core_runtime.checkpoint.arrays import TensorArrays

GROUP = 32
_WIDEST = 127


class Weights:
    """The constants of one model; ``names`` are all of its tensors.

    ``cached``: the type of keys and values in the KV cache.
    """

    def __init__(self, tensors: TensorArrays, dtype: str) -> None:
        self._tensors, self._dtype = tensors, dtype
        self._embedding: ov.Node | None = None
        self.names = tensors.shapes.keys()
        self.cached = ov.Type.bf16 if dtype == "bfloat16" else ov.Type.f32

    def vector(self, name: str) -> ov.Node:
        """Return a norm's weight, with Gemma's +1, or a bias."""
        return ops.constant(self._taken(name))

    def matrix(self, name: str) -> ov.Node:
        """Return a linear layer's weight: [out, in]."""
        return self._constant(self._taken(name))

    def embedding(self) -> ov.Node:
        """Return the token embedding: [vocabulary, H]. It is made once: a tied head shares it."""
        if self._embedding is None:
            self._embedding = self.matrix("model.embed_tokens.weight")
        return self._embedding

    def head(self) -> ov.Node:
        """Return the weight of the LM head: the embedding where they are tied."""
        name = "lm_head.weight"
        return self.matrix(name) if name in self.names else self.embedding()

    def _taken(self, name: str) -> npt.NDArray[np.float32]:
        """Return a tensor. int8 products round NaN and infinities to integers, which hides them."""
        tensor = self._tensors.take(name)
        if self._dtype == "int8" and not np.isfinite(tensor).all():
            raise InvalidModelError(
                f"The tensor {name} has weights that are NaN or infinite, with which dtype='int8' "
                "would give wrong results. Download or convert the model again."
            )
        return tensor

    def _constant(self, matrix: npt.NDArray[np.float32]) -> ov.Node:
        if self._dtype == "float32":
            return ops.constant(matrix)
        if self._dtype == "bfloat16":
            return ops.constant(bfloat16(matrix))
        return grouped(matrix)


def bfloat16(matrix: npt.NDArray[np.float32]) -> ov.Tensor:
    """Return a matrix rounded to bfloat16, to the nearest, ties to even."""
    bits = matrix.view(np.uint32)
    tensor = ov.Tensor(ov.Type.bf16, list(matrix.shape))  # owns its memory, unlike one of an array
    rounded = tensor.data.view(np.uint16)
    rounded[...] = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    rounded[np.isnan(matrix)] = 0x7FC0  # some would have rounded to zero or infinity
    return tensor


def grouped(matrix: npt.NDArray[np.float32]) -> ov.Node:
    """Return a matrix as int8 with a scale per group of columns, in the form that stays packed."""
    rows, columns = matrix.shape
    group = GROUP if columns % GROUP == 0 else columns
    blocks = matrix.reshape(rows, columns // group, group)
    scales = np.abs(blocks).max(axis=-1, keepdims=True) / _WIDEST
    scales[scales == 0] = 1
    integers = np.rint(blocks / scales).astype(np.int8)
    wide = ops.multiply(ops.convert(ops.constant(integers), ov.Type.f32), ops.constant(scales))
    return ops.reshape(wide, ops.constant(np.array([rows, columns], np.int64)), False)


def stored_bytes(shapes: Mapping[str, tuple[int, ...]], dtype: str) -> int:
    """Return the bytes of weights at a dtype."""
    width = {"float32": 4.0, "bfloat16": 2.0, "int8": 1.0 + 4 / GROUP}[dtype]
    return sum(int(np.prod(shape) * (width if len(shape) == 2 else 4)) for shape in shapes.values())
