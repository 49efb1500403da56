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
from core_mlx_native.quantization import Quantization, parse_quantization
from core_mlx_native.rope import Rope, parse_rope
from core_mlx_native.windows import layer_windows


@dataclass(frozen=True, slots=True)
class LayerKind:
    """How one layer attends: over a sliding ``window`` of positions (0 = all), with its rope."""

    window: int
    rope: Rope


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and variants of one decoder. ``layers[i]`` says how layer i attends.

    A cap bounds scores or logits softly: ``cap * tanh(x / cap)`` (Gemma 2, arXiv 2408.00118).
    """

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
    attention_cap: float | None
    logit_cap: float | None
    qkv_bias: bool
    output_bias: bool
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
    if "model_type" not in raw:
        from core_mlx_native.checkpoint import guess_qwen  # imports safetensors: rarely needed

        raw = {**raw, **guess_qwen(directory)}
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
    # Qwen 2 has biases whatever this says, and none behind attention.
    attention_bias = not family.qkv_bias and fields.flag("attention_bias", False)
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
        attention_cap=_cap(fields, family, "attn_logit_softcapping"),
        logit_cap=_cap(fields, family, "final_logit_softcapping"),
        qkv_bias=attention_bias or family.qkv_bias,
        output_bias=attention_bias,
        mlp_bias=fields.flag("mlp_bias", False),
        tied_head=fields.flag("tie_word_embeddings", family.tied_head),
        layers=_layers(fields, family, head_dim),
        quantization=parse_quantization(raw, where),
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


def _cap(fields: Fields, family: Family, name: str) -> float | None:
    if not family.softcaps or fields.values.get(name) is None:
        return None
    return fields.number(name)


def _layers(fields: Fields, family: Family, head_dim: int) -> tuple[LayerKind, ...]:
    count = fields.integer("num_hidden_layers")
    if count > 10_000:
        raise fields.error(f"num_hidden_layers is {count}")
    windows = layer_windows(fields, family, count)
    full = local = parse_rope(fields, "full_attention", head_dim)
    if family.local_rope and any(windows):
        local = parse_rope(fields, "sliding_attention", head_dim)
    return tuple(LayerKind(window, local if window else full) for window in windows)
