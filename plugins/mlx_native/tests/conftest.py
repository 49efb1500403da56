"""Tiny random checkpoints with a real tokenizer, written to disk as a user's model would be."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["MLX_DISABLE_COMPILE"] = "1"  # its CPU JIT starts a C++ compiler

from core_mlx_native.cpu.blas import ensure_blas

ensure_blas()  # before any test imports mlx

import mlx.core as mx
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from core_runtime.checkpoint.config import parse_config
from core_runtime.checkpoint.tensors import expected_tensors

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

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}

Checkpoint = Callable[..., Path]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """Writes a model directory of a family; keywords change config.json (None removes a key)."""

    def write(family: str = "llama", name: str = "model", **changes: Any) -> Path:
        directory = tmp_path / name
        directory.mkdir()
        both = {**FAMILIES[family], **changes}
        config = {key: value for key, value in both.items() if value is not None}
        (directory / "config.json").write_text(json.dumps(config))
        write_weights(directory, config)
        write_tokenizer(directory)
        return directory

    return write


@pytest.fixture(scope="session")
def small_smollm2(smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 with random weights of two narrow layers; vocabulary, chats and context are its."""
    directory = tmp_path_factory.mktemp("small") / "model"
    directory.mkdir()
    config = {**json.loads((smollm2_dir / "config.json").read_text()), **SMALL}
    (directory / "config.json").write_text(json.dumps(config))
    write_weights(directory, config)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (directory / name).write_bytes((smollm2_dir / name).read_bytes())
    return directory


def write_weights(directory: Path, config: dict[str, Any], seed: int = 0) -> None:
    """Random weights large enough for a wrong rope or mask to show."""
    shapes = expected_tensors(parse_config(config, "config"))
    keys = mx.random.split(mx.random.key(seed), len(shapes))
    tensors = {
        name: mx.random.normal(shape, scale=0.3, key=key)
        for (name, shape), key in zip(shapes.items(), keys, strict=True)
    }
    mx.save_safetensors(str(directory / "model.safetensors"), tensors)


def write_tokenizer(directory: Path) -> None:
    """A byte-level BPE over a hundred tokens."""
    tokenizer = Tokenizer(
        models.BPE(vocab={word: i for i, word in enumerate(WORDS)}, merges=MERGES)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
