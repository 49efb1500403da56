"""Tiny random checkpoints with a real tokenizer, written to disk as a user's model would be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from safetensors.numpy import save_file

import core
from core_openvino.library import load_library
from core_runtime.checkpoint.config import parse_config
from core_runtime.checkpoint.tensors import expected_tensors
from runtime.tests.tiny import Checkpoint, write_config, write_tokenizer

if TYPE_CHECKING:
    from core_openvino.model import OpenVinoModel

load_library()  # before any test imports openvino, and its telemetry with it

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """Write a model directory of a family; keywords change config.json (None removes a key)."""

    def write(family: str = "llama", name: str = "model", **changes: Any) -> Path:
        directory = tmp_path / name
        directory.mkdir()
        write_weights(directory, write_config(directory, family, **changes))
        write_tokenizer(directory)
        return directory

    return write


@pytest.fixture
def tiny_model(checkpoint: Checkpoint) -> Iterator[OpenVinoModel]:
    """A tiny Llama in float32, on one thread, with two slots."""
    options = {"n_threads": 1, "dtype": "float32"}
    model = core.load_model(
        checkpoint(max_position_embeddings=512),
        backend="openvino",
        parallel_slots=2,
        options=options,
    )
    with model:
        yield cast("OpenVinoModel", model)


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


def write_weights(directory: Path, config: dict[str, Any], seed: int = 1) -> None:
    """Write random weights large enough for a wrong rope or mask to show."""
    random = np.random.default_rng(seed)
    shapes = expected_tensors(parse_config(config, "config"))
    tensors = {
        name: random.normal(0.0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()
    }
    save_file(tensors, directory / "model.safetensors")
