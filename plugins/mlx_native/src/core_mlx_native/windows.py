"""Which layers attend over a sliding window, from any of the ways config.json says so."""

from __future__ import annotations

from core.errors import UnsupportedModelError
from core_mlx_native.families import Family
from core_mlx_native.fields import Fields

_LAYER_TYPES = {"sliding_attention": True, "full_attention": False}


def layer_windows(fields: Fields, family: Family, count: int) -> tuple[int, ...]:
    """The window of each of ``count`` layers, in positions; 0 is full attention.

    As transformers reads it: Mistral slides everywhere unless ``sliding_window`` is null, Qwen
    where ``use_sliding_window`` is true, Gemma by ``layer_types`` or a pattern.
    Raises `InvalidModelError`, and `UnsupportedModelError` for an unknown layer type.
    """
    slides = _slides(fields, family, count)
    window = fields.integer("sliding_window") if any(slides) else 0
    return tuple(window if sliding else 0 for sliding in slides)


def _slides(fields: Fields, family: Family, count: int) -> list[bool]:
    if family.windows == "none":
        return [False] * count
    if family.windows == "all":
        return [fields.values.get("sliding_window") is not None] * count
    if family.windows == "switched":
        return _switched(fields, count)
    named = _named(fields, count)
    return _patterned(fields, family, count) if named is None else named


def _switched(fields: Fields, count: int) -> list[bool]:
    """Qwen: off as a whole, by name, or from layer ``max_window_layers`` on."""
    named = _named(fields, count)
    first = fields.integer("max_window_layers", low=0)
    by_depth = [index >= first for index in range(count)]
    on = fields.flag("use_sliding_window", False)
    if not on or fields.values.get("sliding_window") is None:
        return [False] * count
    return by_depth if named is None else named


def _patterned(fields: Fields, family: Family, count: int) -> list[bool]:
    """Gemma: every layer but each ``pattern``-th."""
    key = "sliding_window_pattern"
    key = key if fields.values.get(key) else f"_{key}"
    pattern = fields.integer(key, default=family.window_pattern)
    return [(index + 1) % pattern != 0 for index in range(count)]


def _named(fields: Fields, count: int) -> list[bool] | None:
    types = fields.values.get("layer_types")
    if types is None:
        return None
    if not isinstance(types, list) or len(types) != count:
        raise fields.error(f"layer_types does not name each of the {count} layers")
    for name in types:
        if not isinstance(name, str) or name not in _LAYER_TYPES:
            raise UnsupportedModelError(f"{fields.where}: unknown layer type {name!r:.60}.")
    return [_LAYER_TYPES[name] for name in types]
