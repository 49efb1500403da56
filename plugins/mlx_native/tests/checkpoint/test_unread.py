"""Files and tensors beside a model's own: never read by accident, and shown for what they are."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import pytest

import core
from core.models.discovery import discover
from core.models.weight_files import INDEX
from core_mlx_native.backend import Cpu
from core_mlx_native.convert.merging import merge
from core_mlx_native.loaded import load_decoder
from core_runtime.checkpoint.files import tensor_files
from core_runtime.checkpoint.names import HARMLESS, STRANGERS, plain_name
from plugins.mlx_native.tests.adapters.conftest import drawn
from runtime.tests.tiny import Checkpoint

KNOWN = ("optimizer.safetensors", "consolidated.safetensors", "checkpoint-0000100.safetensors")
NORM = "model.norm.weight"


def write(path: Path, *names: str) -> None:
    """Weights of the model itself under another name, and in other numbers: no file is empty."""
    for name in names:
        mx.save_safetensors(str(path / name), {NORM: mx.zeros((32,))})


def logits(path: Path, **options: object) -> list[float]:
    with core.load_model(path, backend="mlx_cpu", **options) as model:  # type: ignore[arg-type]
        found = model.classify(["ab no"], return_logits=True)[0].logits
        assert found is not None
        return list(found)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records]


@pytest.mark.parametrize("sharded", [False, True])
def test_files_beside_the_weights_change_nothing(
    sharded: bool, checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    path = checkpoint()
    if sharded:
        (path / "model.safetensors").rename(path / "model-00001-of-00001.safetensors")
    plain = logits(path)
    (before,) = discover(path)
    write(path, *KNOWN)
    assert logits(path) == plain
    assert messages(caplog) == []
    with core.load_model(path, backend="mlx_cpu") as model:
        assert isinstance(model, core.Explaining)
        unread = {
            choice.value: choice.reason for choice in model.choices() if choice.name == "unread"
        }
    assert unread.keys() == set(KNOWN)
    assert unread["optimizer.safetensors"] == "an optimizer's state"

    (found,) = discover(path)
    assert (found.num_files, found.size_bytes, found.problem) == (1, before.size_bytes, "")
    write(path, "strange.safetensors")
    assert logits(path) == plain
    (warning,) = messages(caplog)
    assert f"{path}: not read: strange.safetensors" in warning
    assert logits(path) == plain
    assert len(messages(caplog)) == 1


def test_an_adapter_beside_the_model_is_said_not_to_be_applied(
    checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    path = checkpoint()
    plain = logits(path)
    mx.save_safetensors(str(path / "adapters.safetensors"), drawn(path))
    said = {"fine_tune_type": "lora", "lora_parameters": {"rank": 2, "scale": 2.0}}
    (path / "adapter_config.json").write_text(json.dumps(said))
    assert logits(path) == plain
    (warning,) = messages(caplog)
    assert (
        "adapters.safetensors is an adapter in the model's directory and is not applied" in warning
    )
    assert "Pass the directory as adapter_path" in warning

    caplog.clear()
    assert logits(path, adapter_path=path) != plain
    assert messages(caplog) == []

    # Merged, it is a model without an adapter, to transformers as well.
    merged = merge(path, path, path.parent / "merged")
    assert not list(merged.glob("adapter*"))
    assert logits(merged) == pytest.approx(logits(path, adapter_path=path), abs=1e-4)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["consolidated.safetensors"], "only consolidated.safetensors [(]Mistral's own format"),
        (["adapter_model.safetensors"], "only adapter_model.safetensors [(]an adapter in PEFT's"),
        (["mine.safetensors"], "no weights of a model, only mine.safetensors"),
        (["model-00001-of-00003.safetensors"], "'model-00002-of-00003.safetensors' is missing"),
        (
            ["model-00001-of-00001.safetensors", "model-00001-of-00002.safetensors"],
            "two sets of weights",
        ),
    ],
)
def test_a_directory_without_weights_of_its_own_is_refused(
    names: list[str], message: str, checkpoint: Checkpoint
) -> None:
    path = checkpoint()
    (path / "model.safetensors").unlink()
    write(path, *names)
    with pytest.raises(core.InvalidModelError, match=message):
        Cpu().load_model(path, core.LoadConfig())
    assert discover(path)[0].problem


def test_a_whole_model_beside_an_index_of_another_is_refused(checkpoint: Checkpoint) -> None:
    path = checkpoint()
    write(path, "one.safetensors")
    (path / INDEX).write_text(json.dumps({"weight_map": {NORM: "one.safetensors"}}))
    with pytest.raises(core.InvalidModelError, match=r"two sets of weights, model\.safetensors"):
        tensor_files(path)
    with pytest.raises(core.InvalidModelError, match="Move one of them"):
        core.load_model(path)


@pytest.mark.parametrize("part", HARMLESS)
def test_a_harmless_tensor_is_passed_over(part: str) -> None:
    for prefix in ("", "model.", "language_model.model."):
        name = f"{prefix}layers.0.self_attn.{part}" if "emb." in part else f"{prefix}{part}0.weight"
        if "emb." in part or not prefix.startswith("language"):
            assert plain_name(name) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("score.weight", "score."),
        ("classifier.weight", "classifier."),
        ("v_head.summary.weight", "v_head."),
        ("model.layers.0.self_attn.q_proj.lora_A.weight", "lora_"),
        ("model.layers.0.mlp.up_proj.qweight", ".qweight"),
        ("model.layers.0.mlp.up_proj.qzeros", ".qzeros"),
        ("model.layers.0.mlp.up_proj.g_idx", ".g_idx"),
        ("model.layers.0.mlp.up_proj.weight.absmax", ".absmax"),
        ("model.layers.0.mlp.up_proj.weight.quant_map", ".quant_"),
        ("model.layers.0.mlp.up_proj.weight_packed", ".weight_packed"),
        ("model.layers.0.self_attn.k_proj.k_scale", "_scale"),
        ("mtp.fc.weight", "mtp."),
        ("model.layers.0.mlp.experts.0.up_proj.weight", "experts."),
    ],
)
def test_a_tensor_that_no_model_here_has_is_refused_as_what_it_is(
    name: str, kind: str, checkpoint: Checkpoint
) -> None:
    path = checkpoint()
    file = path / "model.safetensors"
    tensors = mx.load(str(file))
    assert isinstance(tensors, dict)
    mx.eval(list(tensors.values()))
    mx.save_safetensors(str(file), {**tensors, name: mx.ones((2, 2))})
    with pytest.raises(core.InvalidModelError) as caught:
        load_decoder(path)
    assert f"{name} is not part of this model ({STRANGERS[kind]})" in str(caught.value)
