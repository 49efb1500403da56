"""Tiny model directories: a config of each family, and a real tokenizer; no weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

PARTS = ["Ġ", "Ġa", "Ġb", "ab", "Ġab", "Ġabc", "Ġno", "no"]
MERGES = [("Ġ", "a"), ("Ġ", "b"), ("a", "b"), ("Ġa", "b"), ("Ġab", "c"), ("n", "o"), ("Ġ", "no")]
WORDS = ["<s>", "</s>", *map(chr, range(33, 127)), *PARTS]

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": len(WORDS),
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 64,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": False,
}
GEMMA3: dict[str, Any] = {
    **LLAMA,
    "model_type": "gemma3_text",
    "head_dim": 16,
    "num_hidden_layers": 3,
    "query_pre_attn_scalar": 16,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "rope_local_base_freq": 100.0,
    "tie_word_embeddings": True,
}
QWEN2: dict[str, Any] = {
    **LLAMA,
    "model_type": "qwen2",
    "use_sliding_window": True,
    "sliding_window": 8,
    "max_window_layers": 1,
}
GEMMA2: dict[str, Any] = {
    **{key: GEMMA3[key] for key in GEMMA3 if key not in ("layer_types", "rope_local_base_freq")},
    "model_type": "gemma2",
    "attn_logit_softcapping": 20.0,
    "final_logit_softcapping": 10.0,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "mistral": {**LLAMA, "model_type": "mistral", "sliding_window": 8},
    "qwen2": QWEN2,
    "qwen3": {**QWEN2, "model_type": "qwen3", "head_dim": 16},
    "gemma2": GEMMA2,
    "gemma3": GEMMA3,
}

Checkpoint = Callable[..., Path]


def write_config(directory: Path, family: str, **changes: Any) -> dict[str, Any]:
    """Write the config.json of a family, and return it; None removes a key."""
    both = {**FAMILIES[family], **changes}
    config = {key: value for key, value in both.items() if value is not None}
    (directory / "config.json").write_text(json.dumps(config))
    return config


def write_tokenizer(directory: Path) -> None:
    """Write a byte-level BPE over a hundred tokens."""
    tokenizer = Tokenizer(
        models.BPE(vocab={word: i for i, word in enumerate(WORDS)}, merges=MERGES)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
