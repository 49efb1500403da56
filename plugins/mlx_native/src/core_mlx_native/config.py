"""config.json as this plugin needs it: checked, with defaults filled in, in one shape for all.

Key names are those of transformers' config classes; both the older rope keys (``rope_theta``,
``rope_scaling``, ``rope_local_base_freq``) and transformers 5's ``rope_parameters`` are read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import UnsupportedModelError
from core.model_files import read_config_json
from core_mlx_native.families import FAMILIES, Family
from core_mlx_native.fields import Fields
from core_mlx_native.rope import Rope, parse_rope


@dataclass(frozen=True, slots=True)
class Quantization:
    """MLX's affine quantisation: ``bits`` a weight, one scale and bias per ``group_size``."""

    bits: int
    group_size: int


@dataclass(frozen=True, slots=True)
class LayerKind:
    """How one layer attends: over a sliding ``window`` of positions (0 = all), with its rope."""

    window: int
    rope: Rope


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and variants of one decoder. ``layers[i]`` says how layer i attends."""

    model_type: str
    family: Family
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    rms_norm_eps: float
    attention_scale: float
    attention_bias: bool
    mlp_bias: bool
    tied_head: bool
    layers: tuple[LayerKind, ...]
    quantization: Quantization | None

    @property
    def num_layers(self) -> int:
        """How many decoder layers there are."""
        return len(self.layers)

    @property
    def embedding_scale(self) -> float:
        """What token embeddings are multiplied by: sqrt(hidden size) for Gemma."""
        return math.sqrt(self.hidden_size) if self.family.scaled_embedding else 1.0


def load_config(directory: Path) -> ModelConfig:
    """Read ``directory/config.json``.

    Raises `InvalidModelError` for a broken or contradictory file, `UnsupportedModelError` for an
    architecture, activation or rope type that this plugin has no code for.
    """
    raw = read_config_json(directory)
    return parse_config(raw, str(directory / "config.json"))


def parse_config(raw: Mapping[str, Any], where: str) -> ModelConfig:
    """The same, from parsed JSON; ``where`` names the file in messages."""
    family = _family(raw, where)
    text = raw.get("text_config")
    merged = {**raw, **text} if isinstance(text, Mapping) else raw
    fields = Fields({**family.defaults, **merged}, where)
    _refuse_unknown(fields, family)
    heads = fields.integer("num_attention_heads")
    hidden = fields.integer("hidden_size")
    head_dim = fields.integer("head_dim", default=hidden // heads)
    kv_heads = fields.integer("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise fields.error(f"{heads} attention heads cannot share {kv_heads} key-value heads")
    if head_dim > 65_536:
        raise fields.error(f"head_dim is {head_dim}, larger than any model's")
    if head_dim % 2:
        raise fields.error(f"head_dim {head_dim} is odd, and rope turns pairs")
    return ModelConfig(
        model_type=str(fields.values.get("model_type")),
        family=family,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        context_length=fields.integer("max_position_embeddings"),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        attention_scale=fields.number("query_pre_attn_scalar", float(head_dim)) ** -0.5,
        attention_bias=fields.flag("attention_bias", False),
        mlp_bias=fields.flag("mlp_bias", False),
        tied_head=fields.flag("tie_word_embeddings", family.tied_head),
        layers=_layers(fields, family, head_dim),
        quantization=_quantization(raw, where),
    )


def _family(raw: Mapping[str, Any], where: str) -> Family:
    name = raw.get("model_type")
    family = FAMILIES.get(name) if isinstance(name, str) else None
    if family is None:
        known = ", ".join(sorted(FAMILIES))
        raise UnsupportedModelError(
            f"{where}: the model_type {name!r:.60} is not one that this plugin has code for "
            f"({known}). Another backend may: see `infer-cli backends`."
        )
    return family


def _refuse_unknown(fields: Fields, family: Family) -> None:
    name = fields.values.get(family.activation_key)
    if name not in (None, *family.activation_names):
        raise UnsupportedModelError(
            f"{fields.where}: the activation {name!r:.60} is not known for this model_type "
            f"(known: {', '.join(family.activation_names)})."
        )
    for key in family.refused:
        if fields.values.get(key):
            raise UnsupportedModelError(
                f"{fields.where}: {key}={fields.values[key]!r:.60} has no code here."
            )


def _layers(fields: Fields, family: Family, head_dim: int) -> tuple[LayerKind, ...]:
    count = fields.integer("num_hidden_layers")
    if count > 10_000:
        raise fields.error(f"num_hidden_layers is {count}")
    full = LayerKind(0, parse_rope(fields, "full_attention", head_dim))
    if not family.sliding:
        return (full,) * count
    sliding = LayerKind(
        fields.integer("sliding_window"),
        parse_rope(fields, "sliding_attention", head_dim),
    )
    return tuple(sliding if is_sliding else full for is_sliding in _sliding(fields, count))


def _sliding(fields: Fields, count: int) -> list[bool]:
    """Which layers slide: a list by name, or every layer but each ``pattern``-th."""
    types = fields.values.get("layer_types")
    if types is None:
        key = "sliding_window_pattern"
        pattern = fields.integer(key if fields.values.get(key) else f"_{key}", default=6)
        return [(index + 1) % pattern != 0 for index in range(count)]
    known = {"sliding_attention": True, "full_attention": False}
    if not isinstance(types, list) or len(types) != count:
        raise fields.error(f"layer_types does not name each of the {count} layers")
    for name in types:
        if not isinstance(name, str) or name not in known:
            raise UnsupportedModelError(f"{fields.where}: unknown layer type {name!r:.60}.")
    return [known[name] for name in types]


def _quantization(raw: Mapping[str, Any], where: str) -> Quantization | None:
    found = raw.get("quantization") or raw.get("quantization_config")
    if not found:
        return None
    if not isinstance(found, Mapping) or "group_size" not in found or "quant_method" in found:
        raise UnsupportedModelError(
            f"{where}: only MLX's affine quantisation (bits, group_size) has code here."
        )
    if found.get("mode", "affine") != "affine":
        raise UnsupportedModelError(f"{where}: unknown quantisation mode {found['mode']!r:.60}.")
    fields = Fields(found, where)
    return Quantization(fields.integer("bits"), fields.integer("group_size"))
