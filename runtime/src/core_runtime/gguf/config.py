"""config.json and generation_config.json from GGUF metadata, with transformers' keys.

``rope_scaling`` comes from metadata or from the tensor of frequency factors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core_runtime.checkpoint.fields import ConfigFields
from core_runtime.checkpoint.rope import parse_rope
from core_runtime.gguf.ends import end_ids
from core_runtime.gguf.metadata import Metadata
from core_runtime.gguf.source import GgufSource
from core_runtime.gguf.vocabulary import special_ids

_FACTORS = "rope_freqs.weight"
_MAX_LAYERS = 10_000  # bounds the list of expected tensors, whatever a lying file claims


def rope_scaling(meta: Metadata) -> dict[str, Any] | None:
    """Read linear rope scaling with its factor, None without scaling; refuse other types.

    Defaults and the factor's older name are as in llama.cpp (``llama-model.cpp``).
    """
    kind = meta.text(".rope.scaling.type", "linear")
    factor = meta.number(".rope.scaling.factor", meta.number(".rope.scale_linear", 1.0))
    if kind == "none" or (kind == "linear" and factor in (0.0, 1.0)):
        return None
    if kind != "linear":
        raise meta.error(f"RoPE scaling type {kind!r} is not supported (supported: linear)")
    return {"rope_type": "linear", "factor": factor}


def llama_rope_scaling(source: GgufSource, head_dim: int) -> dict[str, Any] | None:
    """Read rope scaling, including Llama 3's, which a GGUF holds as one divisor per frequency.

    The parameters are recovered by finding those of Meta's releases that give the stored divisors.
    Raises `Metadata.error` if none do.
    """
    linear = rope_scaling(source.metadata)
    if _FACTORS not in source.tensors:
        return linear

    unknown = source.metadata.error(f"{_FACTORS} does not match a supported RoPE scaling")
    if linear or source.shape(_FACTORS) != (head_dim // 2,):
        raise unknown

    # Of Meta's parameters only the factor varies: it is the largest divisor.
    stored = source.array(_FACTORS).tolist()
    scaling = {
        "rope_type": "llama3",
        "factor": round(max(stored), 4),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }

    # The parameters must reproduce the stored divisors.
    base = source.metadata.number(".rope.freq_base", 10_000.0)
    expected = llama3_divisors(scaling, base, head_dim, source.metadata.where)
    pairs = zip(stored, expected, strict=True)
    if any(abs(value - wanted) > 1e-3 * wanted for value, wanted in pairs):
        raise unknown

    return scaling if scaling["factor"] != 1.0 else None


def llama3_divisors(
    scaling: dict[str, Any], base: float, head_dim: int, where: str = ""
) -> list[float]:
    """Return the divisor of each of the ``head_dim / 2`` rope frequencies."""
    plain, scaled = (
        parse_rope(ConfigFields(values, where), "full_attention", head_dim).periods
        for values in ({"rope_theta": base}, {"rope_theta": base, "rope_scaling": scaling})
    )
    return [after / before for before, after in zip(plain, scaled, strict=True)]


def hf_config(source: GgufSource, dtype: str) -> dict[str, Any]:
    """Return every key that transformers' config class of this architecture needs.

    Raises `Metadata.error` for metadata that is missing or has no counterpart there.
    """
    meta = source.metadata
    if meta.integer(".expert_count", 0):
        raise meta.error("mixtures of experts are not supported")
    return {
        **_sizes(source),
        **_special_ids(meta),
        **_BUILDERS[meta.architecture](source),
        "torch_dtype": dtype,
        "use_cache": True,
    }


def generation_config(meta: Metadata) -> dict[str, Any]:
    """Return the token ids that generation begins and ends with."""
    ids, ends = _special_ids(meta), end_ids(meta)
    return {**ids, "eos_token_id": ends} if ends else dict(ids)


def _sizes(source: GgufSource) -> dict[str, Any]:
    meta = source.metadata
    hidden, heads = meta.integer(".embedding_length"), meta.integer(".attention.head_count")
    layers = meta.integer(".block_count")

    # No heads would be a division by zero, and endless layers an endless list of tensors.
    if heads < 1 or not 1 <= layers <= _MAX_LAYERS:
        raise meta.error(f"the metadata has {layers} layers with {heads} attention heads")
    head_dim = _head_dim(meta)
    if meta.integer(".attention.value_length", head_dim) != head_dim:
        raise meta.error("attention keys and values differ in length")
    if meta.integer(".rope.dimension_count", head_dim) != head_dim:
        raise meta.error("RoPE rotates only a part of each head, which is not supported")

    return {
        "vocab_size": _vocabulary_size(source, meta.texts("tokenizer.ggml.tokens")),
        "hidden_size": hidden,
        "intermediate_size": meta.integer(".feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": meta.integer(".attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": meta.integer(".context_length"),
        "rms_norm_eps": meta.number(".attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": "output.weight" not in source.tensors,
        "attention_bias": "blk.0.attn_q.bias" in source.tensors,
    }


def _head_dim(meta: Metadata) -> int:
    heads = meta.integer(".attention.head_count")
    return meta.integer(".attention.key_length", meta.integer(".embedding_length") // heads)


def _vocabulary_size(source: GgufSource, tokens: Sequence[str]) -> int:
    shape = source.shape("token_embd.weight")
    if len(shape) != 2 or shape[0] < len(tokens):
        raise source.metadata.error(
            f"token_embd.weight has shape {list(shape)}, but the vocabulary has {len(tokens)} "
            "tokens"
        )
    return shape[0]


def _special_ids(meta: Metadata) -> dict[str, int]:
    ids = special_ids(meta)
    return {f"{name}_token_id": ids[name] for name in ("bos", "eos", "pad") if name in ids}


def _llama(source: GgufSource) -> dict[str, Any]:
    meta = source.metadata
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "mlp_bias": "blk.0.ffn_up.bias" in source.tensors,
        "rope_theta": meta.number(".rope.freq_base", 10_000.0),
        "rope_scaling": llama_rope_scaling(source, _head_dim(meta)),
    }


def _gemma3(source: GgufSource) -> dict[str, Any]:
    meta = source.metadata
    layers = meta.integer(".block_count")

    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": _gemma3_attention_scalar(meta, layers),
        "rope_theta": meta.number(".rope.freq_base", 1_000_000.0),
        "rope_local_base_freq": meta.number(".rope.freq_base_swa", 10_000.0),
        "rope_scaling": rope_scaling(meta),
        "sliding_window": meta.integer(".attention.sliding_window"),
        "attn_logit_softcapping": None,
        "final_logit_softcapping": meta.get(".final_logit_softcapping"),
        **_gemma3_layers(meta, layers),
    }


def _gemma3_attention_scalar(meta: Metadata, layers: int) -> int:
    """Return the square of the attention scale's divisor, as in llama.cpp's gemma3 code.

    The 27B model, recognised by its 62 layers, is the exception.
    """
    if layers == 62:
        return meta.integer(".embedding_length") // meta.integer(".attention.head_count")
    return meta.integer(".attention.key_length")


def _gemma3_layers(meta: Metadata, layers: int) -> dict[str, Any]:
    """Return the keys of sliding layers: all except every sixth, unless the file differs.

    A pattern of 0 means all layers.
    """
    pattern = meta.get(".attention.sliding_window_pattern")
    if pattern is None or isinstance(pattern, int):
        every = 6 if pattern is None else pattern
        sliding = [not every or (index + 1) % every != 0 for index in range(layers)]
        extra = {"sliding_window_pattern": every} if every else {}
    else:
        sliding = [
            bool(item) for item in meta.integers(".attention.sliding_window_pattern", layers)
        ]
        extra = {}

    names = ["sliding_attention" if item else "full_attention" for item in sliding]
    return {"layer_types": names, **extra}


_BUILDERS: Mapping[str, Callable[[GgufSource], dict[str, Any]]] = {
    "llama": _llama,
    "gemma3": _gemma3,
}
