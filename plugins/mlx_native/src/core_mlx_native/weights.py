"""Checkpoint tensors, brought into the dtype of the device.

Headers are checked before a byte of data is read, so that a broken file is an error with names
in it and never a crash further on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx

from core.errors import InvalidModelError
from core_mlx_native.accounting import packings
from core_mlx_native.checkpoint import read_header, tensor_files
from core_mlx_native.config import ModelConfig
from core_mlx_native.layout import expected_tensors
from core_mlx_native.quantization import Packing
from core_mlx_native.tensor_names import plain_name

_KERNEL_GROUPS = (32, 64, 128)  # the group sizes that MLX has code for


@dataclass(frozen=True, slots=True)
class Weights:
    """Tensors by their plain names; ``packings`` names the matrices that stayed quantised."""

    arrays: dict[str, mx.array]
    packings: Mapping[str, Packing]

    def take(self, name: str) -> mx.array:
        """A tensor, which is forgotten here: its memory is its new owner's alone."""
        return self.arrays.pop(name)


def load_weights(
    directory: Path, config: ModelConfig, dtype: mx.Dtype, dequantize: bool = True
) -> Weights:
    """Every tensor of `layout.expected_tensors`, evaluated.

    Norm weights get Gemma's +1. Without ``dequantize``, quantised matrices stay as they are where
    MLX has a kernel for their group size.
    Raises `InvalidModelError` that lists what is missing, extra, or mis-shaped.
    """
    files = tensor_files(directory)
    packed = packings(read_header(files), config, directory)
    source = _Source(_lazy_tensors(files), packed)
    kept = {} if dequantize else {name: p for name, p in packed.items() if _has_kernel(p)}
    arrays: dict[str, mx.array] = {}
    for name in expected_tensors(config):
        layer = name.removesuffix(".weight")
        if layer in kept:
            tensors = source.packed(layer, dtype)
        else:
            tensors = {name: source.dense(name, config.family.norm_offset).astype(dtype)}
        mx.eval(tensors)  # one at a time: the file's own copy is freed at once
        arrays |= tensors
    return Weights(arrays, kept)


@dataclass(frozen=True, slots=True)
class _Source:
    """The checkpoint's own tensors. What is taken is forgotten here."""

    arrays: dict[str, mx.array]
    packings: Mapping[str, Packing]

    def dense(self, name: str, norm_offset: bool) -> mx.array:
        """One plain tensor; a packed one is dequantised, a norm gets Gemma's +1, in float32."""
        layer = name.removesuffix(".weight")
        if layer in self.packings:
            return _unpack(*self._parts(layer), self.packings[layer])
        tensor = self.arrays.pop(name)
        return tensor.astype(mx.float32) + 1 if norm_offset and layer.endswith("norm") else tensor

    def packed(self, layer: str, dtype: mx.Dtype) -> dict[str, mx.array]:
        """The three tensors of one packed matrix, its scales and biases in ``dtype``."""
        weight, scales, biases = self._parts(layer)
        return {
            f"{layer}.weight": weight,
            f"{layer}.scales": scales.astype(dtype),
            f"{layer}.biases": biases.astype(dtype),
        }

    def _parts(self, layer: str) -> tuple[mx.array, mx.array, mx.array]:
        take = self.arrays.pop
        return take(f"{layer}.weight"), take(f"{layer}.scales"), take(f"{layer}.biases")


def _lazy_tensors(files: list[Path]) -> dict[str, mx.array]:
    # All files together: the parts of one quantised weight may lie in different shards. Data is
    # read when it is evaluated.
    arrays: dict[str, mx.array] = {}
    for path in files:
        loaded = mx.load(str(path))
        if not isinstance(loaded, dict):
            raise InvalidModelError(f"{path} holds no named tensors.")
        arrays.update({plain: loaded[name] for name in loaded if (plain := plain_name(name))})
    return arrays


def _has_kernel(packing: Packing) -> bool:
    return packing.group_size in _KERNEL_GROUPS


def _unpack(weight: mx.array, scales: mx.array, biases: mx.array, packing: Packing) -> mx.array:
    scales, biases = scales.astype(mx.float32), biases.astype(mx.float32)  # [rows, groups]
    if _has_kernel(packing):
        return mx.dequantize(weight, scales, biases, packing.group_size, packing.bits)
    rows, groups = scales.shape
    ones = mx.ones((rows, groups * packing.group_size // 32))
    integers = mx.dequantize(weight, ones, mx.zeros_like(ones), 32, packing.bits)
    grouped = integers.reshape(rows, groups, packing.group_size)
    return (grouped * scales[..., None] + biases[..., None]).reshape(rows, -1)
