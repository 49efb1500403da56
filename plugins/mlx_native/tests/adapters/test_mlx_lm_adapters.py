"""mlx-lm's own loader and layers: it reads what we write, we read what it writes, equal logits."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from core_mlx_native.adapters.apply import LoraSettings, new_adapter, twin
from core_mlx_native.adapters.files import read_adapter, write_adapter
from core_mlx_native.adapters.layers import LowRank
from core_mlx_native.adapters.loading import adapted
from core_mlx_native.loaded import load_decoder
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.prefill import prefill
from plugins.mlx_native.tests.adapters.test_adapted_layers import pack
from runtime.tests.tiny import Checkpoint

utils: Any = import_module("mlx_lm.utils")
tuner: Any = import_module("mlx_lm.tuner.utils")

PROMPT = list(range(3, 20))
TOLERANCE = 1e-4
VISIBLE = 1e-2
KINDS = ["lora", "dora"]
# Of models that mlx-lm computes alike: no windows for Qwen, a pattern of Gemma's layers that it
# knows, and an embedding scale that its bfloat16 holds.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"use_sliding_window": False},
    "qwen3": {"use_sliding_window": False},
    "gemma3": {"hidden_size": 64, "layer_types": None, "sliding_window_pattern": 3},
}


def theirs(path: Path) -> Any:
    model, _ = utils.load_model(path)
    model.set_dtype(mx.float32)
    return model


def ours(path: Path, adapter: Path, **options: Any) -> tuple[Decoder, Decoder]:
    """The network without the adapter and with it."""
    base = load_decoder(path, **options)
    return base, adapted(base, read_adapter(adapter, base.config))[0]


def logits_of(decoder: Decoder) -> mx.array:
    return decoder.logits(prefill(decoder, [PROMPT]).hidden_at([len(PROMPT) - 1]))[0]


def distance(one: mx.array, other: mx.array) -> float:
    return float(mx.abs(one.astype(mx.float32) - other.astype(mx.float32)).max())


def read_by_mlx_lm(path: Path, adapter: Path) -> mx.array:
    model = tuner.load_adapters(theirs(path), str(adapter))
    found: mx.array = model(mx.array([PROMPT]))[0, -1]
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_mlx_lm_reads_ours(family: str, kind: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = checkpoint(family, **FAMILIES[family])
    base = load_decoder(path)
    trained = new_adapter(twin(base), LoraSettings(rank=3, scale=1.5, dora=kind == "dora"))
    key = mx.random.key(5)
    layers = {
        name: LowRank(
            layer.lora_a,
            mx.random.normal(layer.lora_b.shape, scale=0.2, key=key),
            layer.scale,
            layer.m * 1.2 if kind == "dora" else None,
        )
        for name, layer in trained.layers.items()
    }
    write_adapter(tmp_path / "adapter", layers, base.config, notes={"model": "somewhere"})
    plain, decoder = ours(path, tmp_path / "adapter")
    found = read_by_mlx_lm(path, tmp_path / "adapter")
    assert distance(logits_of(decoder), found) < TOLERANCE
    assert distance(logits_of(plain), found) > VISIBLE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_we_read_mlx_lm_s(family: str, kind: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = checkpoint(family, **FAMILIES[family])
    adapter, found = written_by_mlx_lm(path, tmp_path / "adapter", kind)
    plain, decoder = ours(path, adapter)
    assert distance(logits_of(decoder), found) < TOLERANCE
    assert distance(logits_of(plain), found) > VISIBLE


def test_quantised_models_have_the_same_adapters(checkpoint: Checkpoint, tmp_path: Path) -> None:
    packed = pack(checkpoint(hidden_size=64, intermediate_size=64), tmp_path / "packed")
    adapter, found = written_by_mlx_lm(packed, tmp_path / "adapter", "lora")
    for dequantize in (True, False):
        _, decoder = ours(packed, adapter, dequantize=dequantize)
        assert distance(logits_of(decoder), found) < 1e-3


def written_by_mlx_lm(path: Path, adapter: Path, kind: str) -> tuple[Path, mx.array]:
    """An adapter on the last layer alone, saved as mlx_lm.lora saves it, and its logits."""
    model = theirs(path)
    mx.random.seed(1)
    parameters = {"rank": 4, "scale": 2.0, "dropout": 0.0}
    model.freeze()
    tuner.linear_to_lora_layers(model, 1, parameters, use_dora=kind == "dora")
    trained = dict(tree_flatten(model.trainable_parameters()))
    moved = [
        (name, mx.random.normal(value.shape, scale=0.2) if name.endswith("lora_b") else 1.3 * value)
        for name, value in trained.items()
    ]
    model.load_weights(moved, strict=False)

    adapter.mkdir()
    arguments = {"fine_tune_type": kind, "num_layers": 1, "lora_parameters": parameters}
    whole = {**arguments, "model": "somewhere", "batch_size": 4, "seed": 0, "mask_prompt": False}
    utils.save_config(whole, adapter / "adapter_config.json")
    mx.save_safetensors(
        str(adapter / "adapters.safetensors"), dict(tree_flatten(model.trainable_parameters()))
    )
    assert json.loads((adapter / "adapter_config.json").read_text())["num_layers"] == 1
    return adapter, model(mx.array([PROMPT]))[0, -1]
