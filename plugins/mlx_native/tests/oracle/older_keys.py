"""The same config in the keys of older checkpoints, one function per architecture."""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]


def older_llama(config: Config) -> Config:
    """Llama's config in the keys before transformers 5: rope_theta and rope_scaling."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    if rope["rope_type"] == "linear":
        rope["type"] = rope.pop("rope_type")  # the spelling when linear scaling was new
    implied = config["hidden_size"] // config["num_attention_heads"]
    if config.get("head_dim") == implied:
        del config["head_dim"]
    config["torch_dtype"] = config.pop("dtype")
    return config


def older_qwen(config: Config) -> Config:
    """Qwen 2's and 3's: which layers slide follows from max_window_layers alone.

    A window is written down also where ``use_sliding_window`` turns it off, as in published ones.
    """
    config = older_llama(config)
    del config["layer_types"]
    config["sliding_window"] = config["sliding_window"] or 8
    return config


def older_gemma2(config: Config) -> Config:
    """Gemma 2's: every other layer slides, the first one does; nothing says so."""
    head_dim = config["head_dim"]
    config = older_llama(config)
    config["head_dim"] = head_dim  # always written: 256 is what it is when it is not
    del config["rope_scaling"]
    slides = ("sliding_attention", "full_attention")
    if config["layer_types"] == [slides[i % 2] for i in range(config["num_hidden_layers"])]:
        del config["layer_types"]
    return config


def older_gemma3(config: Config) -> Config:
    """Gemma 3's config in its first keys: rope_local_base_freq and sliding_window_pattern."""
    rope = config.pop("rope_parameters")
    config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
    full = rope["full_attention"]
    config["rope_theta"] = full.pop("rope_theta")
    config["rope_scaling"] = None if full["rope_type"] == "default" else full
    config["sliding_window_pattern"] = config.pop("_sliding_window_pattern")
    if config["layer_types"] == layer_types(
        config["sliding_window_pattern"], config["num_hidden_layers"]
    ):
        del config["layer_types"]  # came later; for a regular pattern it was implied
    config["torch_dtype"] = config.pop("dtype")
    return config


def layer_types(pattern: int, layers: int) -> list[str]:
    """Every ``pattern``-th layer sees everything, the others a window."""
    kinds = ("full_attention", "sliding_attention")
    return [kinds[bool((i + 1) % pattern)] for i in range(layers)]
