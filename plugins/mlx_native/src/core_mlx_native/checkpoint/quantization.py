"""MLX's affine quantisation, as config.json describes it: one default, and layers that differ.

A weight matrix ``name.weight`` is stored as packed integers, ``bits`` each, with ``name.scales``
and ``name.biases`` for every ``group_size`` columns: ``weight = scale * integer + bias``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.errors import UnsupportedModelError
from core_mlx_native.checkpoint.fields import Fields
from core_mlx_native.checkpoint.names import plain_name

_BITS = (2, 3, 4, 5, 6, 8)  # what mx.quantize writes
_SETTINGS = {"bits", "group_size", "mode"}


@dataclass(frozen=True, slots=True)
class Packing:
    """The packing of one matrix: bits of an integer, and columns that share a scale."""

    bits: int
    group_size: int

    def problem(self, columns: int) -> str | None:
        """The reason why so many columns cannot be packed like this; None if they can."""
        if columns % self.group_size:
            return f"group_size {self.group_size} does not divide its {columns} columns"
        if columns % 32:
            return f"its {columns} columns do not fill whole words"
        return None


@dataclass(frozen=True, slots=True)
class Quantization:
    """The packing of each layer of a checkpoint.

    ``default`` is that of every layer that ``layers`` does not name; None there is a plain layer.
    """

    default: Packing
    layers: Mapping[str, Packing | None]

    def packing(self, layer: str, looks_packed: bool) -> Packing | None:
        """The packing of ``layer``; one that config.json does not name is packed if it looks so.

        mlx-lm decides alike: a layer with scales is packed (mlx_lm.utils.load_model).
        """
        return self.layers.get(layer, self.default if looks_packed else None)


def parse_quantization(raw: Mapping[str, Any], where: str) -> Quantization | None:
    """The ``quantization`` of a config.json; None when it has none.

    Raises `UnsupportedModelError` for a method that is not MLX's, `InvalidModelError` for values
    that cannot be.
    """
    found = raw.get("quantization") or raw.get("quantization_config")
    if not found:
        return None
    if not isinstance(found, Mapping) or "group_size" not in found or "quant_method" in found:
        method = found.get("quant_method") if isinstance(found, Mapping) else found
        raise UnsupportedModelError(
            f"{where}: only MLX's affine quantisation (bits, group_size) has code here, not "
            f"quant_method={method!r:.60}. Take the model without it, or quantised by mlx_lm."
        )

    # One default, and the layers that config.json names beside it.
    fields = Fields(found, f"{where}: quantization")
    default = _packing(fields)
    layers = {
        plain_name(name) or name: _layer(fields, name, default)
        for name in found
        if name not in _SETTINGS
    }
    return Quantization(default, layers)


def _layer(fields: Fields, name: str, default: Packing) -> Packing | None:
    value = fields.values[name]
    if isinstance(value, bool):
        return default if value else None
    inside = fields.section(name)
    if inside is None:
        raise fields.error(f"{name} is null, neither true, false, nor an object")
    return _packing(inside)


def _packing(fields: Fields) -> Packing:
    mode = fields.values.get("mode", "affine")
    if mode != "affine":
        raise UnsupportedModelError(f"{fields.where}: unknown quantisation mode {mode!r:.60}.")
    bits, group_size = fields.integer("bits"), fields.integer("group_size")
    if bits not in _BITS:
        known = ", ".join(map(str, _BITS))
        raise fields.error(f"bits is {bits}, not one of {known}")
    return Packing(bits, group_size)
