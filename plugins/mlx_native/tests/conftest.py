"""Tiny random checkpoints with a real tokenizer, written to disk as a user's model would be."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

os.environ["MLX_DISABLE_COMPILE"] = "1"  # its CPU JIT starts a C++ compiler

from core_mlx_native.cpu.blas import ensure_blas

ensure_blas()  # before any test imports mlx

import mlx.core as mx
import pytest

from core_runtime.checkpoint.config import parse_config
from core_runtime.checkpoint.tensors import expected_tensors
from runtime.tests.tiny import Checkpoint, write_config, write_tokenizer

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """Writes a model directory of a family; keywords change config.json (None removes a key)."""

    def write(family: str = "llama", name: str = "model", **changes: Any) -> Path:
        directory = tmp_path / name
        directory.mkdir()
        write_weights(directory, write_config(directory, family, **changes))
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
