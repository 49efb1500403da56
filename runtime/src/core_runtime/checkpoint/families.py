"""The differences between architectures, as data: one decoder serves all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from core_runtime.checkpoint.config_keys import FAMILY_KEYS
from core_runtime.checkpoint.keys import KeyRule


@dataclass(frozen=True, slots=True)
class Family:
    """The variant of a decoder. ``defaults`` are those of transformers' config class.

    ``norm_offset``: checkpoints store norm weights minus one. ``sandwich_norms``: norms also after
    attention and MLP. ``overflows_float16``: hidden states exceed 65504. ``runs_float16``: no
    activation does. ``qkv_bias``: queries, keys and values always have one. ``windows``: which
    layers attend over a sliding window (see `windows`); ``window_pattern``: of this many layers,
    one attends to all positions. ``local_rope``: sliding layers have a separate RoPE. ``softcaps``:
    config.json may cap attention scores and logits. ``keys``: config keys with another treatment
    than in `config_keys.CONFIG_KEYS`.
    """

    activation: Literal["silu", "gelu_tanh"] = "silu"
    activation_key: str = "hidden_act"
    activation_names: tuple[str, ...] = ("silu", "swish")
    tied_head: bool = False
    scaled_embedding: bool = False
    norm_offset: bool = False
    sandwich_norms: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False
    overflows_float16: bool = False
    runs_float16: bool = False
    windows: Literal["none", "all", "switched", "patterned"] = "none"
    window_pattern: int = 0
    local_rope: bool = False
    softcaps: bool = False
    keys: Mapping[str, KeyRule] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)


# transformers.LlamaConfig
_LLAMA = Family(
    runs_float16=True, keys=FAMILY_KEYS["llama"], defaults={"max_position_embeddings": 2048}
)

# transformers.MistralConfig
_MISTRAL = Family(
    runs_float16=True,
    windows="all",
    keys=FAMILY_KEYS["mistral"],
    defaults={
        "max_position_embeddings": 131_072,
        "num_key_value_heads": 8,
        "sliding_window": 4096,
    },
)

# transformers.Qwen2Config. Its scores pass float16, so that texts become "!!!" (QwenLM/Qwen3#761,
# #910), and Qwen 3's activations do (vllm-project/vllm#33972).
_QWEN2 = Family(
    qkv_bias=True,
    windows="switched",
    defaults={"max_position_embeddings": 32_768, "sliding_window": 4096, "max_window_layers": 28},
)

# transformers.Qwen3Config
_QWEN3 = replace(
    _QWEN2, qkv_bias=False, qk_norm=True, defaults={**_QWEN2.defaults, "head_dim": 128}
)

# transformers.Gemma2Config
_GEMMA2 = Family(
    activation="gelu_tanh",
    activation_key="hidden_activation",
    activation_names=("gelu_pytorch_tanh",),
    tied_head=True,
    scaled_embedding=True,
    norm_offset=True,
    sandwich_norms=True,
    overflows_float16=True,
    windows="patterned",
    window_pattern=2,
    softcaps=True,
    keys=FAMILY_KEYS["gemma2"],
    defaults={
        "vocab_size": 256_000,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "sliding_window": 4096,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
)

# transformers.Gemma3TextConfig: multimodal checkpoints omit values equal to these.
_GEMMA3 = replace(
    _GEMMA2,
    qk_norm=True,
    window_pattern=6,
    local_rope=True,
    softcaps=False,
    keys=FAMILY_KEYS["gemma3"],
    defaults={
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-6,
        "sliding_window": 4096,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
    },
)

FAMILIES: Mapping[str, Family] = {
    "gemma2": _GEMMA2,
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "llama": _LLAMA,
    "mistral": _MISTRAL,
    "qwen2": _QWEN2,
    "qwen3": _QWEN3,
}
"""The families by ``model_type``."""

ENCODERS = frozenset(
    {"bert", "deberta-v2", "distilbert", "modernbert", "mpnet", "roberta", "xlm-roberta"}
)
"""The encoders by ``model_type``, which the backend ``encoder`` reads."""
