"""RoPE settings that mlx-lm would ignore, added under the names that it reads.

transformers 5 writes ``rope_parameters``, in which Gemma 3 has one section per layer type. Only
some of mlx-lm 0.32's models read it: the others silently use a default, and their output is wrong.
This module adds the older keys that config.json lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def repaired(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that a config.json lacks, to be merged into it, also into ``text_config``."""
    changes = _missing(config)
    text = config.get("text_config")
    if isinstance(text, Mapping) and (inner := _missing(text)):
        changes["text_config"] = {**text, **inner}
    return changes


def _missing(config: Mapping[str, Any]) -> dict[str, Any]:
    keys = {**_rope_keys(config.get("rope_parameters")), **_pattern(config)}
    return {name: value for name, value in keys.items() if config.get(name) is None}


def _rope_keys(parameters: object) -> dict[str, Any]:
    if not isinstance(parameters, Mapping):
        return {}
    sections = {name: value for name, value in parameters.items() if isinstance(value, Mapping)}
    full = sections.get("full_attention", parameters)
    keys = {name: full[name] for name in ("rope_theta", "partial_rotary_factor") if name in full}
    if full.get("rope_type", "default") != "default":
        keys["rope_scaling"] = dict(full)
    sliding = sections.get("sliding_attention", {})
    if "rope_theta" in sliding:
        keys["rope_local_base_freq"] = sliding["rope_theta"]
    return keys


def _pattern(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return Gemma 3's key under its present name."""
    old = config.get("_sliding_window_pattern")
    return {} if old is None else {"sliding_window_pattern": old}
