"""Checkpoint tensors, converted to the device's dtype.

Headers are checked before any data is read, so a broken file gives an error with tensor names and
not a later crash.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import mlx.core as mx

from core.errors import InvalidModelError
from core.kit.support import unicode_error
from core.models.files import open_model_file
from core_runtime.checkpoint.config import ModelConfig
from core_runtime.checkpoint.files import read_header, tensor_files
from core_runtime.checkpoint.names import plain_name
from core_runtime.checkpoint.quantization import Packing
from core_runtime.checkpoint.tensors import checked_tensors, expected_tensors

_KERNEL_GROUPS = (32, 64, 128)  # the group sizes that MLX has code for


class Weights:
    """A checkpoint's tensors by their plain names, each read on first use.

    So a layer can join several in one buffer without a second copy of the model. ``packings`` lists
    the matrices that stay quantised; ``names`` are all tensors.
    """

    def __init__(
        self,
        arrays: dict[str, mx.array],
        stored: Mapping[str, Packing],
        config: ModelConfig,
        dtype: mx.Dtype,
        dequantize: bool,
    ) -> None:
        self.packings = {} if dequantize else {n: p for n, p in stored.items() if has_kernel(p)}
        self._arrays, self._stored, self._dtype = arrays, stored, dtype
        self._norm_offset = config.family.norm_offset
        self.names = frozenset(expected_tensors(config))

    def take(self, name: str) -> mx.array:
        """Return an evaluated tensor and drop it here; norms include Gemma's +1."""
        tensor = self._dense(name).astype(self._dtype)
        mx.eval(tensor)  # by itself: the file's own copy is freed at once
        return tensor

    def take_packed(self, layer: str) -> tuple[mx.array, mx.array, mx.array]:
        """Return the weight, scales and biases of one of ``packings``."""
        weight, scales, biases = self._parts(layer)
        parts = weight, scales.astype(self._dtype), biases.astype(self._dtype)
        mx.eval(parts)
        return parts

    def _dense(self, name: str) -> mx.array:
        layer = name.removesuffix(".weight")
        if layer in self._stored:
            return unpack(*self._parts(layer), self._stored[layer])
        tensor = self._arrays.pop(name)
        if self._norm_offset and layer.endswith("norm"):
            return tensor.astype(mx.float32) + 1
        return tensor

    def _parts(self, layer: str) -> tuple[mx.array, mx.array, mx.array]:
        take = self._arrays.pop
        return take(f"{layer}.weight"), take(f"{layer}.scales"), take(f"{layer}.biases")


def load_weights(
    directory: Path, config: ModelConfig, dtype: mx.Dtype, dequantize: bool = True
) -> Weights:
    """Return the tensors of `tensors.expected_tensors`, checked, and read on first use.

    Without ``dequantize``, matrices stay quantised if MLX has a kernel for their group size. Raises
    `InvalidModelError` that lists missing, extra and mis-shaped tensors.
    """
    files = tensor_files(directory)

    def equal(name: str, other: str) -> bool:
        arrays = lazy_tensors(files)  # by itself: what is read here is freed at once
        return bool(mx.array_equal(arrays[name], arrays[other]))

    config, stored = checked_tensors(read_header(files), config, directory, equal)
    return Weights(lazy_tensors(files), stored, config, dtype, dequantize)


def _name(path: Path, descriptor: int) -> str:
    """Return a name of an open file that MLX accepts: text that can be encoded as UTF-8."""
    return f"/dev/fd/{descriptor}" if unicode_error(str(path)) else str(path)


def lazy_tensors(files: list[Path]) -> dict[str, mx.array]:
    """Return all tensors by their plain names; data is read on evaluation.

    All files are combined: the parts of one quantised weight may be in different shards.
    """
    arrays: dict[str, mx.array] = {}
    for path in files:
        with open_model_file(path) as file:
            loaded = mx.load(_name(path, file.fileno()), format="safetensors")
        if not isinstance(loaded, dict):
            raise InvalidModelError(
                f"{path} contains no named tensors. Download or convert the model again."
            )
        arrays.update({plain: loaded[name] for name in loaded if (plain := plain_name(name))})
    return arrays


def has_kernel(packing: Packing) -> bool:
    """Return True if MLX can pack matrices this way and compute with them."""
    return packing.group_size in _KERNEL_GROUPS


def unpack(weight: mx.array, scales: mx.array, biases: mx.array, packing: Packing) -> mx.array:
    """Return the dense form of a packed matrix, in float32: [rows, columns]."""
    scales, biases = scales.astype(mx.float32), biases.astype(mx.float32)  # [rows, groups]
    if has_kernel(packing):
        return mx.dequantize(weight, scales, biases, packing.group_size, packing.bits)
    rows, groups = scales.shape
    ones = mx.ones((rows, groups * packing.group_size // 32))
    integers = mx.dequantize(weight, ones, mx.zeros_like(ones), 32, packing.bits)
    grouped = integers.reshape(rows, groups, packing.group_size)
    return (grouped * scales[..., None] + biases[..., None]).reshape(rows, -1)
