"""``lora export --gguf``: what an adapter does in MLX, it does in llama.cpp."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
import numpy as np
import pytest

import core
from core.models.gguf import read_gguf
from core_mlx_native.adapters.apply import layer_names
from core_mlx_native.adapters.files import read_adapter, write_adapter
from core_mlx_native.adapters.layers import LowRank
from core_mlx_native.convert import convert
from core_mlx_native.convert.lora_gguf import export_gguf
from core_runtime.checkpoint.config import load_config
from core_runtime.checkpoint.tensors import expected_tensors

MakeGguf = Callable[..., Any]
PROMPTS = {"llama": ["ab a", "1 ab c", "a"], "gemma3": ["ab a", "a b ab", "a"]}
VISIBLE = 1e-2
EXAMPLES = Path(__file__).parents[4] / "examples"


def drawn(model: Path, size: float, *, even: bool = True, dora: bool = False) -> dict[str, LowRank]:
    """Random adapters on every linear map."""
    config = load_config(model)
    shapes, layers = expected_tensors(config), {}
    for number, name in enumerate(layer_names(config.num_layers, ["all-linear"])):
        keys = mx.random.split(mx.random.key(number), 2)
        (out, inner), rank = shapes[f"{name}.weight"], 2 if even else 1 + number % 3
        layers[name] = LowRank(
            mx.random.normal((inner, rank), scale=size, key=keys[0]),
            mx.random.normal((rank, out), scale=size, key=keys[1]),
            1.5 if even else 1.0 + number % 2,
            mx.ones((out,)) if dora else None,
        )
    return layers


def logits(path: Path, backend: str, adapter: Path | None, prompts: list[str]) -> np.ndarray:
    options = {"n_threads": 1} if backend == "llama_cpp" else {}
    with core.load_model(path, backend=backend, adapter_path=adapter, options=options) as model:
        rows = model.classify(prompts, return_logits=True)
        assert [row.error for row in rows] == [None] * len(rows)
        return np.array([row.logits for row in rows], np.float32)


@pytest.mark.parametrize("even", [True, False], ids=["even", "uneven"])
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_logits_are_llama_cpp_s(
    architecture: str, even: bool, tiny_gguf: MakeGguf, tmp_path: Path
) -> None:
    """Llama's rows of q and k are reordered in GGUF, and Gemma's are not."""
    source = tiny_gguf(architecture).write(tmp_path / "m.gguf")
    model = convert(source, tmp_path / "model")
    write_adapter(tmp_path / "adapter", drawn(model, 0.2, even=even), load_config(model))
    exported = export_gguf(model, tmp_path / "adapter", tmp_path / "new" / "lora.gguf")

    prompts = PROMPTS[architecture]
    ours = logits(model, "mlx_cpu", tmp_path / "adapter", prompts)
    theirs = logits(source, "llama_cpp", exported, prompts)
    plain = logits(source, "llama_cpp", None, prompts)
    size = np.abs(theirs).max()
    assert np.abs(ours - theirs).max() / size < 1e-3
    assert np.abs(plain - theirs).max() / size > VISIBLE


def test_names_and_layout_are_those_of_llama_cpp_s_script(
    tiny_gguf: MakeGguf, tmp_path: Path
) -> None:
    model = convert(tiny_gguf().write(tmp_path / "m.gguf"), tmp_path / "model")
    layers = drawn(model, 0.2)
    write_adapter(tmp_path / "adapter", layers, load_config(model))
    header = read_gguf(export_gguf(model, tmp_path / "adapter", tmp_path / "l.gguf"), tensors=True)
    assert header.metadata["general.type"] == "adapter"
    assert header.metadata["general.architecture"] == "llama"
    assert header.metadata["adapter.type"] == "lora"
    assert header.metadata["adapter.lora.alpha"] == 3.0  # scale * rank
    assert {tensor.name for tensor in header.tensors} == {
        f"blk.{layer}.{name}.weight.{part}"
        for layer in range(2)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
        for part in ("lora_a", "lora_b")
    }
    shapes = {tensor.name: tuple(tensor.shape) for tensor in header.tensors}
    assert shapes["blk.0.ffn_down.weight.lora_a"] == (96, 2)
    assert shapes["blk.0.ffn_down.weight.lora_b"] == (2, 64)

    # What llama.cpp does not reorder is there to the bit.
    reader = gguf.GGUFReader(tmp_path / "l.gguf")
    found = {tensor.name: tensor.data for tensor in reader.tensors}
    down = layers["model.layers.1.mlp.down_proj"]
    assert np.array_equal(found["blk.1.ffn_down.weight.lora_a"], np.array(down.a).T)
    assert np.array_equal(found["blk.1.ffn_down.weight.lora_b"], np.array(down.b).T)


def test_half_precision_is_half_as_large(tiny_gguf: MakeGguf, tmp_path: Path) -> None:
    source = tiny_gguf().write(tmp_path / "m.gguf")
    model = convert(source, tmp_path / "model")
    write_adapter(tmp_path / "adapter", drawn(model, 0.2), load_config(model))
    wide = export_gguf(model, tmp_path / "adapter", tmp_path / "wide.gguf")
    half = export_gguf(model, tmp_path / "adapter", tmp_path / "half.gguf", dtype="float16")
    assert half.stat().st_size < 0.75 * wide.stat().st_size
    ones, others = (logits(source, "llama_cpp", file, PROMPTS["llama"]) for file in (wide, half))
    assert 0 < np.abs(ones - others).max() / np.abs(ones).max() < 1e-2


def test_what_llama_cpp_cannot_run_is_refused(tiny_gguf: MakeGguf, tmp_path: Path) -> None:
    model = convert(tiny_gguf().write(tmp_path / "m.gguf"), tmp_path / "model")
    config = load_config(model)
    write_adapter(tmp_path / "dora", drawn(model, 0.2, dora=True), config)
    with pytest.raises(core.ConversionError, match=r"llama\.cpp does not support"):
        export_gguf(model, tmp_path / "dora", tmp_path / "lora.gguf")
    write_adapter(tmp_path / "adapter", drawn(model, 0.2), config)
    with pytest.raises(core.InvalidOptionError, match="float32"):
        export_gguf(model, tmp_path / "adapter", tmp_path / "lora.gguf", dtype="int8")
    for overwrite in (False, True):
        with pytest.raises(
            core.ConversionError, match="is not an adapter in GGUF written by this program"
        ):
            export_gguf(model, tmp_path / "adapter", tmp_path / "m.gguf", overwrite=overwrite)
    with pytest.raises(core.ConversionError, match="is a folder"):
        export_gguf(model, tmp_path / "adapter", model, overwrite=True)
    own = tmp_path / "own.gguf"
    export_gguf(model, tmp_path / "adapter", own)
    with pytest.raises(core.ConversionError, match=r"exists\. Replace it"):
        export_gguf(model, tmp_path / "adapter", own)
    export_gguf(model, tmp_path / "adapter", own, overwrite=True)
    assert not (tmp_path / "lora.gguf").exists()
    assert read_adapter(tmp_path / "adapter", config).layers


@pytest.mark.slow
def test_a_real_model_classifies_alike(
    smollm2_dir: Path, smollm2_gguf: Path, tmp_path: Path
) -> None:
    """SmolLM2's own Q4_1 file in llama.cpp, and the directory that was converted from it."""
    demo = runpy.run_path(str(EXAMPLES / "demo.py"), run_name="demo")
    lines = (EXAMPLES / "headlines.jsonl").read_text(encoding="utf-8").splitlines()[:12]
    prompts = [demo["TEMPLATE"].format(text=json.loads(line)["text"]) for line in lines]
    write_adapter(tmp_path / "adapter", drawn(smollm2_dir, 0.09), load_config(smollm2_dir))
    exported = export_gguf(smollm2_dir, tmp_path / "adapter", tmp_path / "lora.gguf")

    def asked(path: Path, backend: str, adapter: Path | None) -> list[core.ClassifyResult]:
        with core.load_model(path, backend=backend, adapter_path=adapter) as model:
            return model.classify(prompts, labels=demo["LABELS"])

    ours = asked(smollm2_dir, "mlx_cpu", tmp_path / "adapter")
    theirs, plain = (asked(smollm2_gguf, "llama_cpp", file) for file in (exported, None))
    for one, other in zip(ours, theirs, strict=True):
        if min(one.margin or 0, other.margin or 0) > 0.1:
            assert one.label == other.label
    # llama.cpp rounds activations to 8 bits, which alone moves them by 0.009 here.
    assert distance(ours, theirs) < 0.02
    assert distance(plain, theirs) > 0.05, "the adapter does not show"


def distance(ones: list[core.ClassifyResult], others: list[core.ClassifyResult]) -> float:
    """The largest difference between two probabilities of a prompt, in the mean of all prompts."""
    apart = [
        max(abs(p - (other.probabilities or {})[label]) for label, p in one.probabilities.items())
        for one, other in zip(ones, others, strict=True)
        if one.probabilities
    ]
    assert len(apart) == len(ones) > 0
    return sum(apart) / len(apart)
