"""config.json, checked and with defaults filled in, in one form for all families.

Key names are those of transformers' config classes; both the older rope keys (``rope_theta``,
``rope_scaling``, ``rope_local_base_freq``) and transformers 5's ``rope_parameters`` are read, and
all the ways in which config.json marks the layers with a sliding window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from core.errors import UnsupportedModelError
from core_runtime.checkpoint.config_keys import check_config
from core_runtime.checkpoint.families import ENCODERS, FAMILIES, Family
from core_runtime.checkpoint.fields import ConfigFields, JsonFiles
from core_runtime.checkpoint.quantization import Quantization, parse_quantization
from core_runtime.checkpoint.rope import Rope, parse_rope

_LAYER_TYPES = {"sliding_attention": True, "full_attention": False}


def layer_windows(fields: ConfigFields, family: Family, count: int) -> tuple[int, ...]:
    """Return the window of each of ``count`` layers, in positions; 0 is full attention.

    As transformers reads it: Mistral slides by ``layer_types``, or everywhere unless
    ``sliding_window`` is null, Qwen where ``use_sliding_window`` is true, Gemma by ``layer_types``
    or a pattern, and Llama nowhere.
    Raises `InvalidModelError`, and `UnsupportedModelError` for an unknown layer type.
    """
    slides = _slides(fields, family, count)
    window = fields.integer("sliding_window") if any(slides) else 0
    return tuple(window if sliding else 0 for sliding in slides)


def _slides(fields: ConfigFields, family: Family, count: int) -> list[bool]:
    named = _named(fields, count)
    if family.windows == "none":
        if any(named or ()):
            raise UnsupportedModelError(
                f"{fields.where}: layer_types has sliding layers, which this model family does "
                "not support."
            )
        return [False] * count
    if family.windows == "all":  # with layer_types, transformers takes it for a Ministral
        everywhere = fields.values.get("sliding_window") is not None
        return [everywhere] * count if named is None else named
    if family.windows == "switched":
        return _switched(fields, count)
    return _patterned(fields, family, count) if named is None else named


def _switched(fields: ConfigFields, count: int) -> list[bool]:
    """Read Qwen's keys: no sliding layers, named ones, or all from layer ``max_window_layers``."""
    named = _named(fields, count)
    first = fields.integer("max_window_layers", low=0)
    by_depth = [index >= first for index in range(count)]

    on = fields.flag("use_sliding_window", False)
    if not on or fields.values.get("sliding_window") is None:
        return [False] * count
    return by_depth if named is None else named


def _patterned(fields: ConfigFields, family: Family, count: int) -> list[bool]:
    """Read Gemma's keys: every layer slides but each ``pattern``-th."""
    key = "sliding_window_pattern"
    key = key if fields.values.get(key) else f"_{key}"
    pattern = fields.integer(key, default=family.window_pattern)
    return [(index + 1) % pattern != 0 for index in range(count)]


def _named(fields: ConfigFields, count: int) -> list[bool] | None:
    types = fields.values.get("layer_types")
    if types is None:
        return None
    if not isinstance(types, list) or len(types) != count:
        raise fields.error(f"layer_types is not a list of {count} layer types")
    for name in types:
        if not isinstance(name, str) or name not in _LAYER_TYPES:
            raise UnsupportedModelError(f"{fields.where}: unknown layer type {name!r:.60}.")
    return [_LAYER_TYPES[name] for name in types]


@dataclass(frozen=True, slots=True)
class LayerKind:
    """The attention of one layer: over a ``window`` of positions (0 = all), with its rope."""

    window: int
    rope: Rope


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and variants of one decoder. ``layers[i]`` is the attention of layer i.

    A cap bounds scores or logits softly: ``cap * tanh(x / cap)`` (Gemma 2, arXiv 2408.00118).
    ``tied_head``: the embedding is the LM head, unless the checkpoint has another (`tensors`).
    ``notes``: unknown keys of config.json, for the log of a load.
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
    notes: tuple[str, ...] = ()

    @property
    def num_layers(self) -> int:
        """The number of decoder layers."""
        return len(self.layers)

    @property
    def embedding_scale(self) -> float:
        """The factor of token embeddings: sqrt(hidden size) for Gemma, else 1."""
        return math.sqrt(self.hidden_size) if self.family.scaled_embedding else 1.0


def load_config(
    directory: Path, tensors: bool = True, files: JsonFiles | None = None
) -> ModelConfig:
    """Read ``directory/config.json``, and omitted values from the headers of the ``tensors``.

    ``files`` are the directory's JSON files, for a caller that also reads other ones.

    Raises `InvalidModelError` for a broken or contradictory file, `UnsupportedModelError` for an
    unsupported architecture, activation or RoPE type.
    """
    raw = (files or JsonFiles(directory)).read("config.json")
    if "model_type" not in raw:
        # Rarely needed, and it imports safetensors.
        from core_runtime.checkpoint.files import guess_qwen

        raw = {**raw, **guess_qwen(directory)}
    rows = partial(_query_rows, directory) if tensors else _unread
    return parse_config(raw, str(directory / "config.json"), rows)


def _query_rows(directory: Path) -> int | None:
    from core_runtime.checkpoint.files import query_rows  # it imports safetensors, that numpy

    return query_rows(directory)


def _unread() -> None:
    return None


def parse_config(
    raw: Mapping[str, Any], where: str, query_rows: Callable[[], int | None] = _unread
) -> ModelConfig:
    """Build a `ModelConfig` from parsed JSON; ``where`` names the file in messages.

    ``query_rows`` returns the number of rows of the query matrices in the checkpoint, if there is
    one. Raises like `load_config`.
    """
    family = _family(raw, where)
    text = raw.get("text_config")
    merged = {**raw, **text} if isinstance(text, Mapping) else raw
    fields = ConfigFields({**family.defaults, **merged}, where)
    _refuse_activation(fields, family)
    notes = check_config(fields, family.keys)

    # The size of a head: from config.json, else from the tensors, else an equal share.
    heads = fields.integer("num_attention_heads")
    hidden = fields.integer("hidden_size")
    head_dim = fields.integer("head_dim", default=hidden // heads)
    if merged.get("head_dim") is None:
        head_dim = _stored_head_dim(fields, heads, query_rows()) or head_dim

    kv_heads = fields.integer("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise fields.error(
            f"num_key_value_heads {kv_heads} does not divide num_attention_heads {heads}"
        )
    if head_dim > 65_536:
        raise fields.error(f"head_dim {head_dim} is too large")
    if head_dim % 2:
        raise fields.error(f"head_dim {head_dim} is odd, but RoPE rotates pairs")

    # Qwen 2 always has biases before attention, and none after it.
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
        quantization=parse_quantization(merged, where),
        notes=notes,
    )


def _stored_head_dim(fields: ConfigFields, heads: int, rows: int | None) -> int | None:
    """Return the head size according to the tensors; None without tensors.

    They take precedence, because transformers omits keys with default values.
    """
    if rows is not None and (not rows or rows % heads):
        raise fields.error(f"num_attention_heads {heads} does not divide the {rows} rows of q_proj")
    return rows and rows // heads


def _family(raw: Mapping[str, Any], where: str) -> Family:
    name = raw.get("model_type")
    family = FAMILIES.get(name) if isinstance(name, str) else None
    if isinstance(name, str) and name in ENCODERS:
        raise UnsupportedModelError(
            f"{where}: model_type {name!r} is an encoder, which has no next token. Load it with "
            "backend='encoder', which classifies by sentences of labels."
        )
    if family is None:
        known = ", ".join(sorted(FAMILIES))
        raise UnsupportedModelError(
            f"{where}: model_type {name!r:.60} is not supported (supported: {known}). Another "
            "backend may support it: see `infer-cli backends`."
        )
    return family


def _refuse_activation(fields: ConfigFields, family: Family) -> None:
    name = fields.values.get(family.activation_key)
    if name not in (None, *family.activation_names):
        raise UnsupportedModelError(
            f"{fields.where}: activation {name!r:.60} is not supported for this model_type "
            f"(supported: {', '.join(family.activation_names)})."
        )


def _cap(fields: ConfigFields, family: Family, name: str) -> float | None:
    if not family.softcaps or fields.values.get(name) is None:
        return None
    return fields.number(name)


def _layers(fields: ConfigFields, family: Family, head_dim: int) -> tuple[LayerKind, ...]:
    count = fields.integer("num_hidden_layers")
    if count > 10_000:
        raise fields.error(f"num_hidden_layers {count} is too large")
    windows = layer_windows(fields, family, count)
    full = local = parse_rope(fields, "full_attention", head_dim)
    if family.local_rope and any(windows):
        local = parse_rope(fields, "sliding_attention", head_dim)
    return tuple(LayerKind(window, local if window else full) for window in windows)
