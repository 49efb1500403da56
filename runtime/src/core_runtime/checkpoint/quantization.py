"""MLX's affine quantisation in config.json: a default, and layers with other settings.

A weight matrix ``name.weight`` is stored as packed integers, ``bits`` each, with ``name.scales``
and ``name.biases`` for every ``group_size`` columns: ``weight = scale * integer + bias``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.errors import UnsupportedModelError
from core_runtime.checkpoint.fields import ConfigFields
from core_runtime.checkpoint.names import plain_name

_BITS = (2, 3, 4, 5, 6, 8)  # what mx.quantize writes
_SETTINGS = {"bits", "group_size", "mode"}


@dataclass(frozen=True, slots=True)
class Packing:
    """The packing of one matrix: bits of an integer, and columns that share a scale."""

    bits: int
    group_size: int

    def problem(self, columns: int) -> str | None:
        """Return the reason why this number of columns cannot be packed; None if it can."""
        if columns % self.group_size:
            return f"group_size {self.group_size} does not divide its {columns} columns"
        if columns % 32:
            return f"its {columns} columns are not a multiple of 32"
        return None


@dataclass(frozen=True, slots=True)
class Quantization:
    """The packing of each layer of a checkpoint.

    ``default`` applies to layers that ``layers`` does not name; None means unquantised.
    """

    default: Packing
    layers: Mapping[str, Packing | None]

    def packing(self, layer: str, looks_packed: bool) -> Packing | None:
        """Return the packing of ``layer``.

        A layer that config.json does not name is packed if ``looks_packed``.

        The same rule as in mlx-lm: a layer with scales is packed (mlx_lm.utils.load_model).
        """
        return self.layers.get(layer, self.default if looks_packed else None)


def parse_quantization(raw: Mapping[str, Any], where: str) -> Quantization | None:
    """Return the ``quantization`` of a config.json; None without one.

    Raises `UnsupportedModelError` for a method that is not MLX's, `InvalidModelError` for
    impossible values.
    """
    section = raw.get("quantization") or raw.get("quantization_config")
    if not section:
        return None
    if not isinstance(section, Mapping) or "group_size" not in section or "quant_method" in section:
        method = section.get("quant_method") if isinstance(section, Mapping) else section
        raise UnsupportedModelError(
            f"{where}: quant_method={method!r:.60} is not supported (supported: MLX's affine "
            "quantisation, with bits and group_size). Use the unquantised model, or one "
            "quantised by mlx_lm."
        )

    # A default, and the layers that config.json names separately.
    fields = ConfigFields(section, f"{where}: quantization")
    default = _packing(fields)
    layers = {
        plain_name(name) or name: _layer(fields, name, default)
        for name in section
        if name not in _SETTINGS
    }
    return Quantization(default, layers)


def _layer(fields: ConfigFields, name: str, default: Packing) -> Packing | None:
    value = fields.values[name]
    if isinstance(value, bool):
        return default if value else None
    inside = fields.section(name)
    if inside is None:
        raise fields.error(f"{name} is null, neither true, false, nor an object")
    return _packing(inside)


def _packing(fields: ConfigFields) -> Packing:
    mode = fields.values.get("mode", "affine")
    if mode != "affine":
        raise UnsupportedModelError(f"{fields.where}: unknown quantisation mode {mode!r:.60}.")
    bits, group_size = fields.integer("bits"), fields.integer("group_size")
    if bits not in _BITS:
        known = ", ".join(map(str, _BITS))
        raise fields.error(f"bits is {bits}, not one of {known}")
    return Packing(bits, group_size)
