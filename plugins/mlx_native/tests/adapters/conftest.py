"""Adapters for the tiny checkpoints, written by hand in mlx-lm's layout or PEFT's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from core_runtime.checkpoint.config import load_config
from core_runtime.checkpoint.tensors import expected_tensors

Tensors = dict[str, mx.array]
Write = Callable[..., Path]
QUERY = "model.layers.1.self_attn.q_proj"
TARGETS = ("q_proj", "v_proj", "down_proj")


def drawn(
    model: Path, seed: int = 0, rank: int = 2, targets: tuple[str, ...] = TARGETS, size: float = 0.3
) -> Tensors:
    """A and B of some linear maps, A [in, rank] and B [rank, out]."""
    found: Tensors = {}
    for number, (name, shape) in enumerate(expected_tensors(load_config(model)).items()):
        stem = name.removesuffix(".weight")
        if name.endswith("weight") and stem.endswith(targets):
            keys = mx.random.split(mx.random.key(1000 * seed + number))
            out, inner = shape
            found[f"{stem}.lora_a"] = mx.random.normal((inner, rank), scale=size, key=keys[0])
            found[f"{stem}.lora_b"] = mx.random.normal((rank, out), scale=size, key=keys[1])
    return found


@pytest.fixture
def lora(tmp_path: Path) -> Write:
    """Writes an adapter in mlx-lm's layout; keywords change its configuration."""

    def write(tensors: Mapping[str, mx.array], name: str = "adapter", **changes: Any) -> Path:
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        ranks = [array.shape[-1] for key, array in tensors.items() if key.endswith("lora_a")]
        config: dict[str, Any] = {
            "fine_tune_type": "lora",
            "num_layers": 99,
            "lora_parameters": {"rank": (ranks or [2])[0], "scale": 2.0, "dropout": 0.0},
        }
        config |= changes
        mx.save_safetensors(str(directory / "adapters.safetensors"), dict(tensors))
        (directory / "adapter_config.json").write_text(json.dumps(config))
        return directory

    return write


@pytest.fixture
def peft(tmp_path: Path) -> Write:
    """Writes an adapter in PEFT's layout from tensors in mlx-lm's; keywords as for `lora`."""

    def write(tensors: Mapping[str, mx.array], name: str = "peft", **changes: Any) -> Path:
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        named = {"lora_a": "lora_A.weight", "lora_b": "lora_B.weight"}
        stored: Tensors = {}
        for key, array in tensors.items():
            stem, _, part = key.rpartition(".")
            stored[f"base_model.model.{stem}.{named[part]}"] = array.T
        mx.save_safetensors(str(directory / "adapter_model.safetensors"), stored)
        config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none", **changes}
        (directory / "adapter_config.json").write_text(json.dumps(config))
        return directory

    return write
