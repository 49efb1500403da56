"""What sets one architecture apart from another, as data: one decoder serves all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Family:
    """The variants of a decoder. ``defaults`` are those of transformers' config class.

    ``sandwich_norms``: norms also behind attention and MLP. ``norm_offset``: checkpoints store
    norm weights minus one. ``overflows_float16``: activations pass 65504. ``sliding``: some
    layers attend over a window only. ``refused``: config keys that change the mathematics and
    have no code here.
    """

    activation: Literal["silu", "gelu_tanh"] = "silu"
    activation_key: str = "hidden_act"
    activation_names: tuple[str, ...] = ("silu", "swish")
    tied_head: bool = False
    scaled_embedding: bool = False
    norm_offset: bool = False
    sandwich_norms: bool = False
    qk_norm: bool = False
    overflows_float16: bool = False
    sliding: bool = False
    refused: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)


# transformers.LlamaConfig
_LLAMA = Family(defaults={"max_position_embeddings": 2048})

_GEMMA3 = Family(
    activation="gelu_tanh",
    activation_key="hidden_activation",
    activation_names=("gelu_pytorch_tanh",),
    tied_head=True,
    scaled_embedding=True,
    norm_offset=True,
    sandwich_norms=True,
    qk_norm=True,
    overflows_float16=True,
    sliding=True,
    refused=("use_bidirectional_attention", "attn_logit_softcapping", "final_logit_softcapping"),
    # transformers.Gemma3TextConfig: multimodal checkpoints leave out what equals these.
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
    "llama": _LLAMA,
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
}
"""By ``model_type``."""
