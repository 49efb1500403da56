"""A checkpoint's tensors at the dtype of the computation, as constants of a graph.

int8 is symmetric, with one scale per group of columns: ``weight = scale * integer``. Rounding by
row instead costs labels: 103 of 128 stayed equal to float32's, by groups of 32 it was 125. Groups
of 64 and 192 are faster, but less exact: 20.4, 16.0 and 12.7 ms a row of SmolLM2 (a Xeon without
its AMX), whose logits moved by 0.14, 0.17 and 0.24 (root mean square of the 50 likeliest). Unsigned
integers with a float offset per group hold GGUF's Q4_1 exactly, but OpenVINO then multiplies
unrounded activations: 70 ms a row in place of 43, and 47 ms a step of eight rows in place of 27.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import opset13 as ops

from core.errors import InvalidModelError
from core_runtime.checkpoint.arrays import TensorArrays

Floats = npt.NDArray[np.float32]
Shape = tuple[int, ...]
GROUP = 32
_WIDEST = 127
_AT_ONCE = 2**18
"""Numbers that are converted at once, so that they stay in the processor's cache."""


class Weights:
    """The constants of one model; ``names`` are all of its tensors.

    ``stored`` returns the parts of a matrix from a file; without it they are converted here.
    ``cached``: the type of keys and values in the KV cache.
    """

    def __init__(
        self,
        tensors: TensorArrays,
        dtype: str,
        stored: Callable[[str], Sequence[ov.Tensor]] | None = None,
    ) -> None:
        self._tensors, self._dtype, self._stored = tensors, dtype, stored
        self._embedding: Sequence[ov.Tensor] = ()
        self.names = tensors.shapes.keys()
        self.cached = ov.Type.bf16 if dtype == "bfloat16" else ov.Type.f32

    def vector(self, name: str) -> ov.Node:
        """Return a norm's weight, with Gemma's +1, or a bias."""
        return ops.constant(taken(self._tensors, name, self._dtype))

    def matrix(self, name: str) -> ov.Node:
        """Return a linear layer's weight: [out, in]."""
        return constant(self._parts(name))

    def embedded(self, tokens: ov.Node) -> ov.Node:
        """Return the rows of the embedding for tokens: [T, H]."""
        return rows_of(self._embedding_parts(), tokens)

    def head(self) -> ov.Node:
        """Return the weight of the LM head: the embedding where they are tied."""
        name = "lm_head.weight"
        return self.matrix(name) if name in self.names else constant(self._embedding_parts())

    def _embedding_parts(self) -> Sequence[ov.Tensor]:
        """Return the parts of the embedding, which are made once: a tied head shares them."""
        if not self._embedding:
            self._embedding = self._parts("model.embed_tokens.weight")
        return self._embedding

    def _parts(self, name: str) -> Sequence[ov.Tensor]:
        if self._stored is not None:
            return self._stored(name)
        return converted(taken(self._tensors, name, self._dtype), self._dtype)


def taken(tensors: TensorArrays, name: str, dtype: str) -> Floats:
    """Return a tensor, checked by `finite`."""
    return finite(tensors.take(name), name, dtype)


def finite(tensor: Floats, name: str, dtype: str) -> Floats:
    """Return the tensor. int8 products round NaN and infinities to integers, which hides them.

    Raises `core.InvalidModelError` for these.
    """
    if dtype == "int8" and not np.isfinite(tensor).all():
        raise InvalidModelError(
            f"The tensor {name} has weights that are NaN or infinite, with which dtype='int8' "
            "would give wrong results. Download or convert the model again."
        )
    return tensor


# ------------------------------------------------------------ matrices


class Part(NamedTuple):
    """One of the arrays that a matrix is stored as."""

    kind: ov.Type
    shape: Shape

    @property
    def size(self) -> int:
        """The bytes of the array."""
        return math.prod(self.shape) * int(self.kind.size)


def parts_of(shape: Shape, dtype: str) -> list[Part]:
    """Return the arrays of a matrix at a dtype."""
    if dtype == "float32":
        return [Part(ov.Type.f32, shape)]
    if dtype == "bfloat16":
        return [Part(ov.Type.bf16, shape)]
    rows, columns = shape
    group = GROUP if columns % GROUP == 0 else columns
    blocks = (rows, columns // group, group)
    return [Part(ov.Type.i8, blocks), Part(ov.Type.f32, (*blocks[:2], 1))]


def converted(matrix: Floats, dtype: str) -> list[ov.Tensor]:
    """Return the arrays of a matrix; the tensors own their memory."""
    if dtype == "bfloat16":
        return [bfloat16(matrix)]
    if dtype == "int8":
        return grouped(matrix)
    (whole,) = _empty(matrix.shape, dtype)
    whole.data[...] = matrix
    return [whole]


def bfloat16(matrix: Floats) -> ov.Tensor:
    """Return a matrix rounded to bfloat16, to the nearest, ties to even."""
    (tensor,) = _empty(matrix.shape, "bfloat16")
    target = tensor.data.view(np.uint16)
    for rows in _slices(matrix):
        part = matrix[rows]
        bits = part.view(np.uint32)
        target[rows] = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        target[rows][np.isnan(part)] = 0x7FC0  # some would have rounded to zero or infinity
    return tensor


def grouped(matrix: Floats) -> list[ov.Tensor]:
    """Return the integers of a matrix, and their scales."""
    integers, scales = _empty(matrix.shape, "int8")
    for rows in _slices(matrix):
        blocks = matrix[rows].reshape(-1, *integers.data.shape[1:])
        own = np.abs(blocks).max(axis=-1, keepdims=True) / _WIDEST
        own[own == 0] = 1
        integers.data[rows] = np.rint(blocks / own)
        scales.data[rows] = own
    return [integers, scales]


def constant(parts: Sequence[ov.Tensor]) -> ov.Node:
    """Return the node of a matrix, [out, in], in the form that stays packed; parts are shared."""
    if len(parts) == 1:
        return ov.op.Constant(parts[0], shared_memory=True)
    integers, scales = (ov.op.Constant(part, shared_memory=True) for part in parts)
    wide = ops.multiply(ops.convert(integers, ov.Type.f32), scales)
    rows, *blocks = parts[0].get_shape()
    return ops.reshape(wide, ops.constant(np.array([rows, math.prod(blocks)], np.int64)), False)


def rows_of(parts: Sequence[ov.Tensor], rows: ov.Node) -> ov.Node:
    """Return the node of some rows of a matrix.

    OpenVINO would copy a whole int8 matrix for a node that gathers from its product with scales.
    """
    axis = ops.constant(np.array([0], np.int64))
    first, *scales = (
        ops.gather(ov.op.Constant(part, shared_memory=True), rows, axis) for part in parts
    )
    if not scales:
        return first
    columns = math.prod(parts[0].get_shape()[1:])
    wide = ops.multiply(ops.convert(first, ov.Type.f32), scales[0])
    return ops.reshape(wide, ops.constant(np.array([-1, columns], np.int64)), False)


def stored_bytes(shapes: Mapping[str, Shape], dtype: str) -> int:
    """Return the bytes of weights at a dtype; vectors are float32."""
    own = (
        parts_of(shape, dtype) if len(shape) == 2 else [Part(ov.Type.f32, shape)]
        for shape in shapes.values()
    )
    return sum(part.size for parts in own for part in parts)


def _empty(shape: Shape, dtype: str) -> list[ov.Tensor]:
    return [ov.Tensor(part.kind, list(part.shape)) for part in parts_of(shape, dtype)]


def _slices(matrix: Floats) -> Iterator[slice]:
    rows, columns = matrix.shape
    step = max(1, _AT_ONCE // columns)
    return (slice(start, start + step) for start in range(0, rows, step))
