"""The angles of rotary position embeddings (RoPE), from all spellings in config.json.

Formulas: RoFormer (arXiv 2104.09864); ``linear`` divides every frequency by ``factor``;
``llama3`` is transformers' ``_compute_llama3_parameters`` (modeling_rope_utils.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from core.errors import InvalidModelError, UnsupportedModelError
from core_runtime.checkpoint.fields import ConfigFields

LayerType = Literal["full_attention", "sliding_attention"]


@dataclass(frozen=True, slots=True)
class Rope:
    """``periods[k]`` is the number of positions per radian of pair k: position / period = angle.

    ``head_dim / 2`` values, as ``mx.fast.rope(freqs=...)`` takes them.
    """

    periods: tuple[float, ...]


def parse_rope(config: ConfigFields, layer_type: LayerType, head_dim: int) -> Rope:
    """Return the RoPE of one layer type.

    Raises `UnsupportedModelError` for an unknown RoPE type, `InvalidModelError` for bad numbers.
    """
    rope = _parameters(config, layer_type)
    kind = rope.values.get("rope_type") or rope.values.get("type") or "default"
    if not isinstance(kind, str) or kind not in _SCALINGS:
        known = ", ".join(_SCALINGS)
        raise UnsupportedModelError(
            f"{rope.where}: rope type {kind!r:.60} is not supported (supported: {known})."
        )
    if rope.number("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedModelError(
            f"{rope.where}: a partial_rotary_factor other than 1 is not supported."
        )

    base = rope.number("rope_theta", 10_000.0)
    scale = _SCALINGS[kind]
    return Rope(tuple(scale(base ** (2 * i / head_dim), rope) for i in range(head_dim // 2)))


def _parameters(config: ConfigFields, layer_type: LayerType) -> ConfigFields:
    """Return the parameters of one layer type, with ``rope_theta`` among them."""
    modern, older = config.section("rope_parameters"), config.section("rope_scaling")
    if modern is not None and older is not None:
        _refuse_contradiction(modern, older)
    if modern is not None and layer_type in modern.values:
        return modern.section(layer_type) or modern
    if layer_type == "sliding_attention":  # Gemma 3's older keys: local layers are never scaled
        return ConfigFields({"rope_theta": config.values.get("rope_local_base_freq")}, config.where)

    scaling = modern or older
    outside = {name: config.values[name] for name in _OUTSIDE if name in config.values}
    inside: Mapping[str, object] = scaling.values if scaling else {}
    first = {name: config.values[name] for name in _FIRST if name in config.values}
    return ConfigFields({**outside, **inside, **first}, scaling.where if scaling else config.where)


# Keys outside the section: fallbacks for omitted ones; and one with precedence, as in transformers.
_OUTSIDE = ("rope_theta", "partial_rotary_factor")
_FIRST = ("original_max_position_embeddings",)


def _refuse_contradiction(modern: ConfigFields, older: ConfigFields) -> None:
    """Raise `InvalidModelError` if the older section has values that the newer one lacks.

    transformers 5 then uses the older one, without the base in the newer one.
    """
    full = (modern.section("full_attention") or modern).values
    kind = full.get("rope_type", full.get("type"))
    stated = {**full, "rope_type": kind, "type": kind}
    for name, value in older.values.items():
        if stated.get(name) != value:
            raise InvalidModelError(
                f"{older.where} has {name}={value!r:.60}, which rope_parameters lacks. Add it to "
                "rope_parameters, and remove rope_scaling."
            )


def _default(period: float, rope: ConfigFields) -> float:
    return period


def _linear(period: float, rope: ConfigFields) -> float:
    return period * rope.number("factor")


def _llama3(period: float, rope: ConfigFields) -> float:
    """Stretch long wavelengths by ``factor``, short ones not at all, and those between partly."""
    factor = rope.number("factor")
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    if high <= low:
        raise rope.error(f"high_freq_factor {high} is not above low_freq_factor {low}")
    # full turns within the original context
    turns = rope.number("original_max_position_embeddings") / (2 * math.pi * period)
    if turns < low:
        return period * factor
    if turns > high:
        return period
    smooth = (turns - low) / (high - low)
    return period / ((1 - smooth) / factor + smooth)


_SCALINGS: dict[str, Callable[[float, ConfigFields], float]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
}
