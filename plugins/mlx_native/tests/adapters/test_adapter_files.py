"""What is read of an adapter's directory, and what is refused, each with what to do."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import core
from core_mlx_native.adapters.files import Layout, read_adapter, write_adapter
from core_mlx_native.adapters.layers import LowRank
from core_mlx_native.loaded import load_decoder
from core_runtime.checkpoint.config import load_config
from plugins.mlx_native.tests.adapters.conftest import QUERY, Tensors, Write, drawn
from runtime.tests.tiny import Checkpoint

LAYOUTS: tuple[Layout, ...] = ("mlx-lm", "peft")


def refused(model: Path, adapter: Path, error: type[core.CoreError], match: str) -> str:
    with pytest.raises(error, match=match) as caught:
        core.load_model(model, backend="mlx_cpu", adapter_path=adapter)
    return str(caught.value)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_written_is_read_again(layout: Layout, checkpoint: Checkpoint, lora: Write) -> None:
    path = checkpoint()
    config = load_config(path)
    stored = read_adapter(lora(drawn(path)), config)
    assert stored.layout == "mlx-lm"
    write_adapter(path.parent / "again", stored.layers, config, layout, dropout=0.1)
    said = path.parent / "again" / "adapter_config.json"
    said.write_bytes(said.read_text().replace("\n", "\r\n").encode("utf-8-sig"))  # as by an editor
    again = read_adapter(path.parent / "again", config)
    assert again.layout == ("mlx-lm" if layout == "mlx-lm" else "PEFT")
    assert list(again.layers) == list(stored.layers)
    for one, other in zip(stored.layers.values(), again.layers.values(), strict=True):
        assert one.scale == other.scale == 2.0
        assert mx.array_equal(one.a, other.a)
        assert mx.array_equal(one.b, other.b)
    assert not [name for name in os.listdir(path.parent / "again") if name.startswith(".")]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layers_of_several_ranks_and_scales_come_to_the_same(
    layout: Layout, checkpoint: Checkpoint
) -> None:
    path = checkpoint()
    config = load_config(path)
    key = mx.random.split(mx.random.key(3), 2)
    layers = {
        f"model.layers.{index}.self_attn.q_proj": LowRank(
            mx.random.normal((32, rank), key=key[0]),
            mx.random.normal((rank, 32), key=key[1]),
            scale,
        )
        for index, (rank, scale) in enumerate([(1, 0.5), (3, 4.0)])
    }
    write_adapter(path.parent / "uneven", layers, config, layout)
    for name, layer in read_adapter(path.parent / "uneven", config).layers.items():
        assert layer.a.shape == (32, 3)
        one, other = (
            layer.scale * layer.a @ layer.b,
            layers[name].scale * layers[name].a @ layers[name].b,
        )
        assert float(mx.abs(one - other).max()) < 1e-5


def test_peft_s_scales_ranks_and_patterns(checkpoint: Checkpoint, peft: Write) -> None:
    path = checkpoint()
    config = load_config(path)
    tensors = drawn(path, rank=4)

    def scales(**changes: Any) -> dict[str, float]:
        found = read_adapter(peft(tensors, r=4, **changes), config).layers
        return {name.removeprefix("model.layers."): layer.scale for name, layer in found.items()}

    assert set(scales(lora_alpha=8).values()) == {2.0}
    assert set(scales(lora_alpha=8, use_rslora=True).values()) == {4.0}
    some = scales(lora_alpha=8, alpha_pattern={"1.self_attn.q_proj": 2, "down_proj": 1})
    assert some["1.self_attn.q_proj"] == 0.5
    assert some["0.self_attn.q_proj"] == 2.0
    assert some["0.mlp.down_proj"] == some["1.mlp.down_proj"] == 0.25

    smaller = {**tensors, f"{QUERY}.lora_a": tensors[f"{QUERY}.lora_a"][:, :1]}
    smaller[f"{QUERY}.lora_b"] = tensors[f"{QUERY}.lora_b"][:1]
    pattern = {QUERY.replace(".", "\\."): 1}
    layers = read_adapter(peft(smaller, r=4, lora_alpha=8, rank_pattern=pattern), config).layers
    assert layers[QUERY].scale == 8
    with pytest.raises(core.UnsupportedModelError, match="List the layers one by one"):
        read_adapter(peft(tensors, r=4, rank_pattern={"(a+)+$": 2}), config)


def changed(key: str, change: Callable[[mx.array], mx.array]) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {**tensors, key: change(tensors[key])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: {}, "the file has no tensors"),
        (changed(f"{QUERY}.lora_a", lambda a: a[:-1]), r"q_proj.lora_a has shape \[31, 2\]"),
        (changed(f"{QUERY}.lora_a", lambda a: a.T), r"not \[32, rank\]"),
        (changed(f"{QUERY}.lora_b", lambda b: b[:1]), "its other half has rank 2"),
        (changed(f"{QUERY}.lora_b", lambda b: b.astype(mx.int32)), "dtype I32, not BF16 or F16"),
        (changed(f"{QUERY}.lora_b", lambda b: b.reshape(-1)), r"lora_b has shape \[64\]"),
        (lambda t: {k: v for k, v in t.items() if k != f"{QUERY}.lora_b"}, "q_proj has no B"),
        (
            lambda t: {**t, "model.layers.2.self_attn.q_proj.lora_a": mx.zeros((32, 2))},
            "layers.0 to model.layers.1",
        ),
        (
            lambda t: {**t, "model.embed_tokens.lora_a": mx.zeros((32, 2))},
            "only q_proj, .* can have an adapter",
        ),
        (lambda t: {**t, "lm_head.weight": mx.zeros((3, 2))}, "it replaces the LM head"),
        (lambda t: {**t, f"{QUERY}.m": mx.ones(32)}, "belongs to DoRA, which"),
    ],
)
def test_what_does_not_belong_to_the_model_is_listed(
    change: Callable[[Tensors], Tensors], message: str, checkpoint: Checkpoint, lora: Write
) -> None:
    path = checkpoint()
    text = refused(path, lora(change(drawn(path))), core.InvalidModelError, message)
    assert "does not fit this model" in text


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_adapter_of_another_model_is_told_by_names_and_shapes(
    layout: Layout, checkpoint: Checkpoint, lora: Write, peft: Write
) -> None:
    path, other = checkpoint(), checkpoint("llama", "other", hidden_size=64, num_hidden_layers=3)
    write = lora if layout == "mlx-lm" else peft
    text = refused(path, write(drawn(other)), core.InvalidModelError, "does not fit this model")
    assert "q_proj" in text
    assert (
        "has shape [64, 2], not [32, rank]" in text or "has shape [2, 64], not [rank, 32]" in text
    )
    assert "model.layers.2" in text
    assert "does not belong to the model" in text


def test_a_rank_of_nothing_is_refused(checkpoint: Checkpoint, lora: Write) -> None:
    path = checkpoint()
    tensors = {
        key: value[:, :0] if key.endswith("lora_a") else value[:0]
        for key, value in drawn(path).items()
    }
    parameters = {"rank": 0, "scale": 2.0}
    adapter = lora(tensors, lora_parameters=parameters)
    refused(path, adapter, core.InvalidModelError, "rank")
    adapter = lora(tensors, lora_parameters={"rank": 1, "scale": 2.0})
    refused(path, adapter, core.InvalidModelError, "rank 0")


@pytest.mark.parametrize("zero", ["lora_a", "lora_b"])
def test_an_adapter_that_changes_nothing_is_refused(
    zero: str, checkpoint: Checkpoint, lora: Write
) -> None:
    path, tensors = checkpoint(), drawn(checkpoint(name="same"))
    for key in tensors:
        if key.endswith(zero):
            tensors[key] = mx.zeros_like(tensors[key])
    refused(path, lora(tensors), core.InvalidModelError, "changes nothing: A or B is zero in all")

    # One layer that changes something is enough.
    tensors[f"{QUERY}.{zero}"] = mx.ones_like(tensors[f"{QUERY}.{zero}"])
    core.load_model(path, backend="mlx_cpu", adapter_path=lora(tensors)).close()


def test_dora_s_lengths_alone_are_a_change(checkpoint: Checkpoint, lora: Write) -> None:
    path = checkpoint()
    weights = mx.load(str(path / "model.safetensors"))
    assert isinstance(weights, dict)
    tensors = {key: value for key, value in drawn(path).items() if key.startswith(QUERY)}
    tensors[f"{QUERY}.lora_b"] = mx.zeros_like(tensors[f"{QUERY}.lora_b"])
    length = mx.linalg.norm(weights[f"{QUERY}.weight"], axis=1)
    adapter = lora({**tensors, f"{QUERY}.m": length}, fine_tune_type="dora")
    refused(path, adapter, core.InvalidModelError, "changes nothing")
    adapter = lora({**tensors, f"{QUERY}.m": 1.5 * length}, fine_tune_type="dora")
    core.load_model(path, backend="mlx_cpu", adapter_path=adapter).close()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"lora_parameters": None}, core.InvalidModelError, "lora_parameters is missing"),
        ({"lora_parameters": 3}, core.InvalidModelError, "not an object"),
        ({"lora_parameters": {"rank": 8, "scale": 1}}, core.InvalidModelError, "has rank 2, but"),
        ({"lora_parameters": {"rank": 2}}, core.InvalidModelError, "scale is None"),
        ({"lora_parameters": {"rank": 2, "scale": 0}}, core.InvalidModelError, "scale is 0"),
        ({"lora_parameters": {"rank": 2, "scale": 1e400}}, core.InvalidModelError, "inf"),
        ({"fine_tune_type": "full"}, core.UnsupportedModelError, "mlx_lm.fuse"),
        ({"fine_tune_type": "dora"}, core.InvalidModelError, "has no magnitude"),
        ({"peft_type": "LOHA"}, core.ModelNotFoundError, "adapter_model.safetensors"),
    ],
    ids=str,
)
def test_wrong_configurations_are_refused(
    changes: dict[str, Any],
    error: type[core.CoreError],
    message: str,
    checkpoint: Checkpoint,
    lora: Write,
) -> None:
    path = checkpoint()
    refused(path, lora(drawn(path), **changes), error, message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peft_type": "LOHA"}, "supported: LORA"),
        ({"bias": "all"}, "bias='all'"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"lora_bias": True}, "lora_bias"),
    ],
    ids=str,
)
def test_what_peft_can_and_we_cannot_is_refused(
    changes: dict[str, Any], message: str, checkpoint: Checkpoint, peft: Write
) -> None:
    path = checkpoint()
    refused(path, peft(drawn(path), **changes), core.UnsupportedModelError, message)


def test_what_is_no_adapter_is_said_to_be_none(
    checkpoint: Checkpoint, lora: Write, tmp_path: Path
) -> None:
    path = checkpoint()
    refused(path, tmp_path / "nothing", core.ModelNotFoundError, "Adapter not found: ")
    refused(path, path, core.ModelNotFoundError, "adapter_config.json is missing")
    refused(
        path,
        path / "config.json",
        core.InvalidModelError,
        "For a GGUF adapter, use backend llama_cpp",
    )

    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 2}')
    (pickled / "adapter_model.bin").write_bytes(b"\x80\x04.")
    refused(path, pickled, core.InvalidModelError, "a pickle file, which can run code")

    broken = lora({**drawn(path), f"{QUERY}.lora_b": mx.full((2, 32), float("nan"))})
    refused(path, broken, core.InvalidModelError, "contains NaN or infinity")


def test_hostile_files_are_refused_before_they_are_read(
    checkpoint: Checkpoint, lora: Write, tmp_path: Path
) -> None:
    path = checkpoint()
    adapter = lora(drawn(path))
    weights, config = adapter / "adapters.safetensors", adapter / "adapter_config.json"
    whole, said = weights.read_bytes(), config.read_text()

    def cases() -> list[bytes]:
        header = json.dumps({f"{QUERY}.lora_a": {"dtype": "F32", "shape": [32, 2**40]}}).encode()
        return [
            b"",
            whole[:-1],
            whole[:9],
            struct.pack("<Q", 2**62) + whole[8:],
            struct.pack("<Q", len(header)) + header,
            whole + b"x",
        ]

    for data in cases():
        weights.write_bytes(data)
        refused(path, adapter, core.InvalidModelError, "not a complete safetensors file")
    weights.write_bytes(whole)

    for text in ("", "[]", "{", '{"a":' * 10_000, '{"lora_parameters": {"rank": 1e9, "scale": 1}}'):
        config.write_text(text)
        refused(path, adapter, core.InvalidModelError, "adapter_config.json")
    config.write_text(said)

    # Pipes, and links to what is none: nothing waits.
    for file in (weights, config):
        kept = file.read_bytes()
        file.unlink()
        os.mkfifo(file)
        refused(path, adapter, core.ModelError, "adapter")
        file.unlink()
        file.symlink_to(tmp_path / "nowhere")
        refused(path, adapter, core.ModelError, "adapter")
        file.unlink()
        file.write_bytes(kept)
    core.load_model(path, backend="mlx_cpu", adapter_path=adapter).close()


def test_random_damage_is_never_more_than_an_error(checkpoint: Checkpoint, lora: Write) -> None:
    path = checkpoint()
    adapter = lora(drawn(path))
    weights = adapter / "adapters.safetensors"
    whole = np.frombuffer(weights.read_bytes(), np.uint8)
    config, refusals = load_config(path), 0
    for seed in range(60):
        dice = np.random.default_rng(seed)
        data = whole.copy()
        places = dice.integers(0, 900 if seed % 2 else len(data), 1 + seed % 5)  # the header, often
        data[places] = dice.integers(0, 256, len(places))
        weights.write_bytes(data.tobytes())
        try:
            read_adapter(adapter, config)
        except core.ModelError:
            refusals += 1
    assert refusals > 10


def test_a_full_disk_leaves_the_adapter_that_was_there(
    checkpoint: Checkpoint, lora: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = checkpoint()
    config = load_config(path)
    adapter = path.parent / "mine"
    write_adapter(adapter, read_adapter(lora(drawn(path)), config).layers, config)
    before = {file.name: file.read_bytes() for file in adapter.iterdir()}
    layers = read_adapter(lora(drawn(path, 7), "other"), config).layers

    def full(file: str, *rest: Any, **named: Any) -> None:
        Path(file).write_bytes(b"half")
        raise RuntimeError("[write] no space left on device")

    monkeypatch.setattr(mx, "save_safetensors", full)
    with pytest.raises(OSError, match="Cannot write"):
        write_adapter(adapter, layers, config)
    assert {file.name: file.read_bytes() for file in adapter.iterdir()} == before


@pytest.mark.parametrize("spoil", ["another's", "a file", "no weights", "a link"])
def test_an_adapter_that_others_wrote_is_not_replaced(
    checkpoint: Checkpoint, lora: Write, spoil: str
) -> None:
    path = checkpoint()
    config, adapter, mine = load_config(path), lora(drawn(path)), path.parent / "mine.json"
    layers = read_adapter(adapter, config).layers
    weights, settings = adapter / "adapters.safetensors", adapter / "adapter_config.json"
    if spoil == "a file":
        adapter = mine
        mine.write_text("mine")
    elif spoil == "no weights":
        weights.unlink()
    elif spoil == "a link":  # beside weights that this program wrote
        write_adapter(path.parent / "own", layers, config)
        (path.parent / "own" / "adapters.safetensors").replace(weights)
        settings.replace(mine)
        settings.symlink_to(mine)
    before = {file: file.read_bytes() for file in path.parent.rglob("*") if file.is_file()}
    with pytest.raises(core.OutputError):
        write_adapter(adapter, layers, config)
    assert {file: file.read_bytes() for file in path.parent.rglob("*") if file.is_file()} == before


def test_the_names_of_a_multimodal_model_are_read(checkpoint: Checkpoint, lora: Write) -> None:
    path = checkpoint("gemma3", model_type="gemma3")
    config = load_config(path)
    prefixed = {f"language_model.{key}": value for key, value in drawn(path).items()}
    stored = read_adapter(lora(prefixed), config)
    assert len(stored.layers) == len(prefixed) // 2
    write_adapter(path.parent / "again", stored.layers, config)
    written = mx.load(str(path.parent / "again" / "adapters.safetensors"))
    assert isinstance(written, dict)
    assert written.keys() == prefixed.keys()
    assert load_decoder(path) is not None
