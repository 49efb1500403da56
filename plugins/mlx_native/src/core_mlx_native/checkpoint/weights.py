"""Checkpoint tensors, brought into the dtype of the device.

Headers are checked before a byte of data is read, so that a broken file is an error with names
in it and never a crash further on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import mlx.core as mx

from core.errors import InvalidModelError
from core.models.files import open_model_file
from core.support import unicode_error
from core_mlx_native.checkpoint.config import ModelConfig
from core_mlx_native.checkpoint.files import read_header, tensor_files
from core_mlx_native.checkpoint.names import plain_name
from core_mlx_native.checkpoint.quantization import Packing
from core_mlx_native.checkpoint.tensors import expected_tensors, packings

_HEAD, _EMBEDDING = "lm_head", "model.embed_tokens"
_KERNEL_GROUPS = (32, 64, 128)  # the group sizes that MLX has code for


class Weights:
    """A checkpoint's tensors by their plain names, each read when it is taken.

    So a layer may put several into one buffer without a second copy of the whole model.
    ``packings`` names the matrices that stay quantised; ``names`` are all tensors.
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
        """A tensor of the model, evaluated, and forgotten here; norms have Gemma's +1."""
        tensor = self._dense(name).astype(self._dtype)
        mx.eval(tensor)  # by itself: the file's own copy is freed at once
        return tensor

    def take_packed(self, layer: str) -> tuple[mx.array, mx.array, mx.array]:
        """The weight, scales and biases of one of ``packings``."""
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
    """The tensors of `tensors.expected_tensors`, checked, and read when they are taken.

    Without ``dequantize``, quantised matrices stay as they are where MLX has a kernel for their
    group size. Raises `InvalidModelError` that lists what is missing, extra, or mis-shaped.
    """
    files = tensor_files(directory)
    header = read_header(files)

    # Some exports store a head although config.json ties it to the embedding.
    twice = config.tied_head and any(name.startswith(f"{_HEAD}.") for name in header)
    if twice:
        config = replace(config, tied_head=False)

    stored = packings(header, config, directory)
    if twice and _is_copy(lazy_tensors(files)):
        config = replace(config, tied_head=True)
        stored.pop(_HEAD, None)

    return Weights(lazy_tensors(files), stored, config, dtype, dequantize)


def _is_copy(arrays: Mapping[str, mx.array]) -> bool:
    """True if a head that config.json ties to the embedding equals it: some exports store both.

    Where it is not, config.json is wrong, and transformers (5) uses both as well; the arrays are
    the caller's to drop, for they are read here.
    """
    return all(
        (part := name.replace(_HEAD, _EMBEDDING, 1)) in arrays
        and bool(mx.array_equal(array, arrays[part]))
        for name, array in arrays.items()
        if name.startswith(f"{_HEAD}.")
    )


def _name(path: Path, descriptor: int) -> str:
    """A name of an open file that MLX takes: text that has a UTF-8 form."""
    return f"/dev/fd/{descriptor}" if unicode_error(str(path)) else str(path)


def lazy_tensors(files: list[Path]) -> dict[str, mx.array]:
    """All tensors by their plain names; data is read when it is evaluated.

    Of all files together: the parts of one quantised weight may lie in different shards.
    """
    arrays: dict[str, mx.array] = {}
    for path in files:
        with open_model_file(path) as file:
            loaded = mx.load(_name(path, file.fileno()), format="safetensors")
        if not isinstance(loaded, dict):
            raise InvalidModelError(f"{path} holds no named tensors.")
        arrays.update({plain: loaded[name] for name in loaded if (plain := plain_name(name))})
    return arrays


def has_kernel(packing: Packing) -> bool:
    """True if MLX computes with matrices of this packing, and packs them."""
    return packing.group_size in _KERNEL_GROUPS


def unpack(weight: mx.array, scales: mx.array, biases: mx.array, packing: Packing) -> mx.array:
    """The matrix that a packed one stands for, in float32: [rows, columns]."""
    scales, biases = scales.astype(mx.float32), biases.astype(mx.float32)  # [rows, groups]
    if has_kernel(packing):
        return mx.dequantize(weight, scales, biases, packing.group_size, packing.bits)
    rows, groups = scales.shape
    ones = mx.ones((rows, groups * packing.group_size // 32))
    integers = mx.dequantize(weight, ones, mx.zeros_like(ones), 32, packing.bits)
    grouped = integers.reshape(rows, groups, packing.group_size)
    return (grouped * scales[..., None] + biases[..., None]).reshape(rows, -1)
