"""Which checkpoints there are: an architecture, its options, and the variants of its config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch  # type: ignore[import-not-found, unused-ignore]
from transformers import (  # type: ignore[import-not-found, unused-ignore]
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from .older_keys import Config, older_gemma2, older_gemma3, older_llama, older_qwen

VOCAB_SIZE = 96
WINDOW = 8
FULL, SLIDING = "full_attention", "sliding_attention"
SMALL: Config = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    # At the usual 0.02 all attention is nearly uniform, and a wrong rope or mask would not show.
    "initializer_range": 0.2,
}

PLAIN: Config = {"rope_type": "default", "rope_theta": 10_000.0}
WIDE: Config = {"rope_type": "default", "rope_theta": 1_000_000.0}
LINEAR: Config = {**PLAIN, "rope_type": "linear", "factor": 4.0}
LLAMA3: Config = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    # Short, so that all three of its frequency bands are used by the prompts here.
    "original_max_position_embeddings": 16,
}
GEMMA_PLAIN: Config = {FULL: WIDE, SLIDING: PLAIN}
GEMMA_LINEAR: Config = {FULL: {**WIDE, "rope_type": "linear", "factor": 8.0}, SLIDING: PLAIN}

# Qwen's and Mistral's windows, each with its opposite on the same weights.
QWEN_SLIDING: Config = {
    "use_sliding_window": True,
    "sliding_window": WINDOW,
    "max_window_layers": 1,
    "layer_types": [FULL, SLIDING],
}
QWEN_FULL: Config = {
    "use_sliding_window": False,
    "sliding_window": None,
    "max_window_layers": 1,
    "layer_types": [FULL, FULL],
}
MISTRAL_SLIDING: Config = {"sliding_window": WINDOW}
MISTRAL_FULL: Config = {"sliding_window": None}
NO_CAPS: Config = {"attn_logit_softcapping": None, "final_logit_softcapping": None}


def rope(parameters: Config) -> Config:
    """The change of a config that sets its rope."""
    return {"rope_parameters": parameters}


@dataclass(frozen=True)
class Checkpoint:
    """Random weights, and the variants of its config that are computed from them.

    ``score_gain`` and ``logit_gain`` make attention scores and logits that much larger, so that
    Gemma 2's caps bite.
    """

    name: str
    seed: int
    config: type[PreTrainedConfig]
    older: Callable[[Config], Config]
    variants: Mapping[str, Config]
    options: Config
    dtype: torch.dtype = torch.bfloat16
    max_shard_size: str = "1GB"
    score_gain: float = 1.0
    logit_gain: float = 1.0


LLAMAS = (
    Checkpoint(
        name="llama-1-kv-head-tied",
        seed=0,
        config=LlamaConfig,
        older=older_llama,
        variants={"default": rope(PLAIN), "linear": rope(LINEAR)},
        options={"num_hidden_layers": 2, "num_key_value_heads": 1, "tie_word_embeddings": True},
        dtype=torch.float16,
    ),
    Checkpoint(
        name="llama-2-kv-heads-wide-sharded",
        seed=1,
        config=LlamaConfig,
        older=older_llama,
        variants={"default": rope({**PLAIN, "rope_theta": 500_000.0}), "llama3": rope(LLAMA3)},
        options={"num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 24},
        max_shard_size="80KB",
    ),
    Checkpoint(
        name="llama-4-kv-heads",
        seed=2,
        config=LlamaConfig,
        older=older_llama,
        variants={"llama3": rope(LLAMA3)},
        options={"num_hidden_layers": 2, "num_key_value_heads": 4, "rms_norm_eps": 1e-5},
    ),
    Checkpoint(
        name="llama-2-kv-heads-biased",
        seed=6,
        config=LlamaConfig,
        older=older_llama,
        variants={"default": rope(PLAIN)},
        options={
            "num_hidden_layers": 2,
            "num_key_value_heads": 2,
            "intermediate_size": 16,
            "attention_bias": True,
            "mlp_bias": True,
        },
    ),
)

GEMMA2S = (
    Checkpoint(
        name="gemma2-1-kv-head",
        seed=7,
        config=Gemma2Config,
        older=older_gemma2,
        variants={"default": rope(PLAIN), "no-caps": {**rope(PLAIN), **NO_CAPS}},
        options={
            "num_hidden_layers": 2,
            "num_key_value_heads": 1,
            "intermediate_size": 16,
            "head_dim": 16,
            "query_pre_attn_scalar": 24,  # as in the 27B one, not head_dim
            "sliding_window": WINDOW,
        },
        score_gain=6.0,
        logit_gain=3.5,
    ),
    Checkpoint(
        name="gemma2-2-kv-heads-wide-untied",
        seed=8,
        config=Gemma2Config,
        older=older_gemma2,
        variants={"small-caps": rope({**PLAIN, "rope_theta": 5_000.0})},
        options={
            "num_hidden_layers": 2,
            "num_key_value_heads": 2,
            "intermediate_size": 16,
            "head_dim": 24,
            "query_pre_attn_scalar": 20,
            "sliding_window": WINDOW,
            "layer_types": [FULL, SLIDING],  # the reverse of what the architecture implies
            "attn_logit_softcapping": 20.0,
            "final_logit_softcapping": 10.0,
            "tie_word_embeddings": False,
        },
        score_gain=3.0,
        logit_gain=2.0,
    ),
    Checkpoint(
        name="gemma2-4-kv-heads",
        seed=9,
        config=Gemma2Config,
        older=older_gemma2,
        variants={"default": rope(PLAIN)},
        options={
            "num_hidden_layers": 2,
            "num_key_value_heads": 4,
            "intermediate_size": 16,
            "head_dim": 16,
            "query_pre_attn_scalar": 12,
            "sliding_window": WINDOW,
        },
        score_gain=4.0,
        logit_gain=3.5,
    ),
)

GEMMA3S = (
    Checkpoint(
        name="gemma3-1-kv-head",
        seed=3,
        config=Gemma3TextConfig,
        older=older_gemma3,
        variants={"default": rope(GEMMA_PLAIN), "linear": rope(GEMMA_LINEAR)},
        options={
            "num_hidden_layers": 4,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "sliding_window": WINDOW,
            "sliding_window_pattern": 2,
        },
    ),
    Checkpoint(
        name="gemma3-2-kv-heads-wide-untied",
        seed=4,
        config=Gemma3TextConfig,
        older=older_gemma3,
        variants={"linear": rope(GEMMA_LINEAR)},
        options={
            "num_hidden_layers": 3,
            "num_key_value_heads": 2,
            "head_dim": 24,
            "query_pre_attn_scalar": 20,  # not head_dim, so that one cannot stand in for the other
            "sliding_window": WINDOW,
            # no regular pattern: contradicts the `_sliding_window_pattern` that is saved with it
            "layer_types": [FULL, SLIDING, FULL],
            "tie_word_embeddings": False,
        },
    ),
    Checkpoint(
        name="gemma3-4-kv-heads",
        seed=5,
        config=Gemma3TextConfig,
        older=older_gemma3,
        variants={"linear": rope(GEMMA_LINEAR)},
        options={
            "num_hidden_layers": 3,
            "num_key_value_heads": 4,
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "sliding_window": WINDOW,
            "sliding_window_pattern": 3,
        },
    ),
)

TWO_LAYERS: Config = {"num_hidden_layers": 2, "intermediate_size": 16}

QWENS = (
    Checkpoint(
        name="qwen2-1-kv-head-tied",
        seed=10,
        config=Qwen2Config,
        older=older_qwen,
        variants={"default": rope(WIDE), "linear": rope(LINEAR)},
        options={**TWO_LAYERS, "num_key_value_heads": 1, "tie_word_embeddings": True},
        dtype=torch.float16,
    ),
    Checkpoint(
        name="qwen2-2-kv-heads",
        seed=11,
        config=Qwen2Config,
        older=older_qwen,
        variants={
            "full": {**rope(PLAIN), **QWEN_FULL},
            "sliding": {**rope(PLAIN), **QWEN_SLIDING},
        },
        options={**TWO_LAYERS, "num_key_value_heads": 2},
    ),
    Checkpoint(
        name="qwen2-4-kv-heads-sharded",
        seed=12,
        config=Qwen2Config,
        older=older_qwen,
        variants={"llama3": rope(LLAMA3)},
        options={**TWO_LAYERS, "num_key_value_heads": 4},
        max_shard_size="60KB",
    ),
    Checkpoint(
        name="qwen3-1-kv-head-wide-tied",
        seed=13,
        config=Qwen3Config,
        older=older_qwen,
        variants={"default": rope(WIDE), "linear": rope(LINEAR)},
        options={
            **TWO_LAYERS,
            "num_key_value_heads": 1,
            "head_dim": 24,
            "tie_word_embeddings": True,
        },
    ),
    Checkpoint(
        name="qwen3-2-kv-heads-biased",
        seed=14,
        config=Qwen3Config,
        older=older_qwen,
        variants={
            "full": {**rope(PLAIN), **QWEN_FULL},
            "sliding": {**rope(PLAIN), **QWEN_SLIDING},
        },
        options={**TWO_LAYERS, "num_key_value_heads": 2, "head_dim": 24, "attention_bias": True},
    ),
    Checkpoint(
        name="qwen3-4-kv-heads-narrow",
        seed=15,
        config=Qwen3Config,
        older=older_qwen,
        variants={"llama3": rope(LLAMA3)},
        options={**TWO_LAYERS, "num_key_value_heads": 4, "head_dim": 12},
    ),
)

MISTRALS = (
    Checkpoint(
        name="mistral-1-kv-head-tied",
        seed=16,
        config=MistralConfig,
        older=older_llama,
        variants={
            "sliding": {**rope(PLAIN), **MISTRAL_SLIDING},
            "full": {**rope(PLAIN), **MISTRAL_FULL},
        },
        options={**TWO_LAYERS, "num_key_value_heads": 1, "tie_word_embeddings": True},
    ),
    Checkpoint(
        name="mistral-2-kv-heads-wide",
        seed=17,
        config=MistralConfig,
        older=older_llama,
        variants={
            "linear": {**rope(LINEAR), **MISTRAL_SLIDING},
            "llama3": {**rope(LLAMA3), **MISTRAL_FULL},
            # With layer_types, transformers takes it for a Ministral.
            "layered": {**rope(PLAIN), **MISTRAL_SLIDING, "layer_types": [FULL, SLIDING]},
        },
        options={**TWO_LAYERS, "num_key_value_heads": 2, "head_dim": 24},
    ),
    Checkpoint(
        name="mistral-4-kv-heads",
        seed=18,
        config=MistralConfig,
        older=older_llama,
        variants={"sliding": {**rope(WIDE), **MISTRAL_SLIDING}},
        options={**TWO_LAYERS, "num_key_value_heads": 4},
    ),
)

CHECKPOINTS = (*LLAMAS, *GEMMA2S, *GEMMA3S, *QWENS, *MISTRALS)
