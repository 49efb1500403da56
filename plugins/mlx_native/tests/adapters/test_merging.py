"""``merge``: a plain directory whose model computes what the adapter did."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import core
from core_mlx_native.adapters.files import read_adapter
from core_mlx_native.adapters.loading import adapted
from core_mlx_native.convert.merging import merge
from core_mlx_native.loaded import load_decoder
from plugins.mlx_native.tests.adapters.conftest import QUERY, Write, drawn
from plugins.mlx_native.tests.adapters.test_adapted_layers import difference, pack, passes
from plugins.mlx_native.tests.adapters.test_loaded_adapters import OPERATIONS, distance
from runtime.tests.tiny import FAMILIES, Checkpoint

TOLERANCE = 1e-5  # times the largest logit


@pytest.mark.parametrize(
    ("family", "dora"), [*((family, False) for family in FAMILIES), ("qwen2", True)]
)
def test_merged_equals_adapted(
    family: str, dora: bool, checkpoint: Checkpoint, lora: Write, tmp_path: Path
) -> None:
    path, changes = checkpoint(family), {}
    tensors = drawn(path)
    if dora:
        weights = mx.load(str(path / "model.safetensors"))
        assert isinstance(weights, dict)
        changes = {"fine_tune_type": "dora"}
        for stem in [key.removesuffix(".lora_a") for key in tensors if key.endswith("lora_a")]:
            tensors[f"{stem}.m"] = 1.2 * mx.linalg.norm(weights[f"{stem}.weight"], axis=1)
    adapter = lora(tensors, **changes)

    base = load_decoder(path)
    decoder, _ = adapted(base, read_adapter(adapter, base.config))
    merged = load_decoder(merge(path, adapter, tmp_path / "merged"))
    assert difference(passes(merged), passes(decoder)) < TOLERANCE
    assert difference(passes(merged), passes(base)) > 1e-2


def test_the_merged_directory_is_a_model_of_its_own(
    checkpoint: Checkpoint, lora: Write, tmp_path: Path
) -> None:
    path = checkpoint("gemma3")
    (path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    (path / "pytorch_model.bin").write_bytes(b"\x80")
    (path / "notes").mkdir()
    (path / "additional_chat_templates").mkdir()
    (path / "additional_chat_templates" / "rag.jinja").write_text("rag")
    adapter = lora(drawn(path))
    seen: list[tuple[int, int]] = []
    target = merge(path, adapter, tmp_path / "merged", progress=lambda *done: seen.append(done))
    assert target.stat().st_mode & 0o777 == 0o700  # as private as its adapter
    assert seen[0] == (0, seen[-1][1])
    assert seen[-1][0] == seen[-1][1] == len(seen) - 1
    assert (target / "additional_chat_templates" / "rag.jinja").read_text() == "rag"
    assert {file.name for file in target.iterdir()} == {
        "additional_chat_templates",
        "chat_template.jinja",
        "config.json",
        "conversion.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    record = json.loads((target / "conversion.json").read_text())["merged"]
    assert record == {"model": "model", "adapter": "LoRA of rank 2 on 9 linear maps"}
    adapter.rename(tmp_path / "gone")
    with (
        core.load_model(target, backend="mlx_cpu") as model,
        core.load_model(path, backend="mlx_cpu", adapter_path=tmp_path / "gone") as wanted,
    ):
        for operation in OPERATIONS.values():
            assert distance(operation(model), operation(wanted)) < 1e-4


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16])
def test_dtypes_stay(dtype: mx.Dtype, checkpoint: Checkpoint, lora: Write, tmp_path: Path) -> None:
    path = checkpoint()
    weights = mx.load(str(path / "model.safetensors"))
    assert isinstance(weights, dict)
    weights = {name: array.astype(dtype) for name, array in weights.items()}
    mx.save_safetensors(str(path / "model.safetensors"), weights)
    merged = mx.load(str(merge(path, lora(drawn(path)), tmp_path / "m") / "model.safetensors"))
    assert isinstance(merged, dict)
    assert merged.keys() == weights.keys()
    assert {array.dtype for array in merged.values()} == {dtype}
    changed = {name for name in merged if not mx.array_equal(merged[name], weights[name])}
    assert changed == {
        name
        for name in weights
        if name.endswith(("q_proj.weight", "v_proj.weight", "down_proj.weight"))
    }


def test_what_was_quantised_is_quantised_again(
    checkpoint: Checkpoint, lora: Write, tmp_path: Path
) -> None:
    dense = checkpoint(hidden_size=64, intermediate_size=64)
    packed = pack(dense, tmp_path / "packed")
    adapter = lora(drawn(dense, size=0.1))
    target = merge(packed, adapter, tmp_path / "merged")
    before, after = (mx.load(str(d / "model.safetensors")) for d in (packed, target))
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert {n: (a.shape, a.dtype) for n, a in after.items()} == {
        n: (a.shape, a.dtype) for n, a in before.items()
    }
    base = load_decoder(packed)
    decoder, _ = adapted(base, read_adapter(adapter, base.config))
    merged = load_decoder(target, dequantize=False)
    assert difference(passes(merged), passes(decoder)) < 0.05  # of 8 bits, once more
    assert difference(passes(merged), passes(base)) > 0.1


def test_shards_stay_a_whole(checkpoint: Checkpoint, lora: Write, tmp_path: Path) -> None:
    path = checkpoint()
    whole = mx.load(str(path / "model.safetensors"))
    assert isinstance(whole, dict)
    names = {"one.safetensors": list(whole)[::2], "two.safetensors": list(whole)[1::2]}
    for file, some in names.items():
        mx.save_safetensors(str(path / file), {name: whole[name] for name in some})
    (path / "model.safetensors").unlink()
    weight_map = {name: file for file, some in names.items() for name in some}
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    target = merge(path, lora(drawn(path)), tmp_path / "merged")
    assert not (target / "model.safetensors.index.json").exists()
    load_decoder(target)


def test_what_cannot_be_merged_leaves_nothing(
    checkpoint: Checkpoint, lora: Write, tmp_path: Path
) -> None:
    path = checkpoint()
    zeros = {key: mx.zeros_like(value) for key, value in drawn(path).items()}
    good, nothing = lora(drawn(path)), lora(zeros, "zeros")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    cases: list[tuple[Path, Path, type[core.CoreError], str]] = [
        (nothing, tmp_path / "out", core.InvalidModelError, "changes nothing"),
        (tmp_path / "none", tmp_path / "out", core.ModelNotFoundError, "Adapter not found"),
        (good, tmp_path / "full", core.ConversionError, "not empty"),
        (good, path, core.ConversionError, "not empty"),
    ]
    for adapter, out, error, message in cases:
        with pytest.raises(error, match=message):
            merge(path, adapter, out)
    with pytest.raises(core.ConversionError, match=r"no conversion has written"):
        merge(path, good, path, overwrite=True)
    assert not (tmp_path / "out").exists()
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]

    # A merged model may be replaced, and nothing else.
    merge(path, good, tmp_path / "out")
    with pytest.raises(core.ConversionError, match="not empty"):
        merge(path, good, tmp_path / "out")
    merge(path, good, tmp_path / "out", overwrite=True)


def test_an_overflow_and_a_full_disk_are_told(
    checkpoint: Checkpoint, lora: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = checkpoint()
    weights = mx.load(str(path / "model.safetensors"))
    assert isinstance(weights, dict)
    small = {name: array.astype(mx.float16) for name, array in weights.items()}
    mx.save_safetensors(str(path / "model.safetensors"), small)
    tensors = drawn(path)
    large = {**tensors, f"{QUERY}.lora_b": 1e6 * tensors[f"{QUERY}.lora_b"]}
    with pytest.raises(core.ConversionError, match="overflows float16"):
        merge(path, lora(large), tmp_path / "out")
    adapter = lora(tensors)

    def full(*values: Any, **named: Any) -> None:
        raise RuntimeError("no space left on device")

    monkeypatch.setattr(mx, "save_safetensors", full)
    with pytest.raises(core.ConversionError, match="no space left"):
        merge(path, adapter, tmp_path / "out")
    assert not (tmp_path / "out").exists()
