"""Every key of an adapter's configuration: read, refused by name, or passed over for a reason."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import core
from core_mlx_native.adapters.files import read_adapter
from core_mlx_native.adapters.mlx_lm_keys import MLX_LM_KEYS, MLX_LM_PARAMETERS
from core_mlx_native.adapters.peft_keys import INITIALISATIONS, PEFT_KEYS
from core_mlx_native.convert.exporting import export_directory
from core_mlx_native.convert.lora_gguf import export_gguf
from core_mlx_native.convert.merging import merge
from core_runtime.checkpoint.config import load_config
from plugins.mlx_native.tests.adapters.conftest import QUERY, Write, drawn
from runtime.tests.tiny import Checkpoint

ORACLE = json.loads((Path(__file__).parents[1] / "oracle_peft/initialisations.json").read_text())
MOVED_BY: dict[str, float] = ORACLE["moved_by"]
VALUES: dict[str, Any] = {"true": True, "false": False}
VISIBLE = 0.1

# A value of each key that is refused which changes what an adapter computes.
TELLING: dict[str, Any] = {
    "task_type": "SEQ_CLS",
    "bias": "lora_only",
    "modules_to_save": ["lm_head"],
    "trainable_token_indices": {"embed_tokens": [0]},
    "layer_replication": [[0, 2], [1, 2]],
    "alora_invocation_tokens": [3],
    "invocation_string": "<|mark|>",
    "enable_lora": [True, False, True],
}


def test_every_key_of_peft_is_in_the_table() -> None:
    assert set(ORACLE["keys"]) - set(PEFT_KEYS) == set()
    of_older_versions = set(PEFT_KEYS) - set(ORACLE["keys"])
    assert of_older_versions == {
        *("enable_lora", "merge_weights", "invocation_string", "runtime_config", "core_training")
    }


@pytest.mark.parametrize("value", MOVED_BY)
def test_an_initialisation_is_refused_where_peft_changes_the_weights(
    value: str, checkpoint: Checkpoint, peft: Write
) -> None:
    path = checkpoint()
    adapter = peft(drawn(path), init_lora_weights=VALUES.get(value, value))
    if MOVED_BY[value] == 0:
        assert read_adapter(adapter, load_config(path)).layers
        return
    assert MOVED_BY[value] > VISIBLE
    with pytest.raises(core.UnsupportedModelError, match=f"init_lora_weights='{value}'") as caught:
        read_adapter(adapter, load_config(path))
    assert "path_initial_model_for_weight_conversion" in str(caught.value)


def test_merge_and_export_refuse_what_a_load_does(
    checkpoint: Checkpoint, peft: Write, tmp_path: Path
) -> None:
    path = checkpoint()
    adapter = peft(drawn(path), init_lora_weights="pissa")
    out = tmp_path / "out"
    writers: list[Callable[[], object]] = [
        lambda: merge(path, adapter, out),
        lambda: export_directory(path, adapter, out, "peft"),
        lambda: export_gguf(path, adapter, out),
    ]
    for write in writers:
        with pytest.raises(core.UnsupportedModelError, match="init_lora_weights='pissa'"):
            write()
        assert not out.exists()


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        (None, False),
        ("Gaussian", False),  # as PEFT compares
        ("OLoRA", True),
        ("pissa_niter_16", True),
        ("corda", True),
        ("loftq", True),  # not measured: PEFT needs a GPU for it
        ("nobody_knows", True),
        (["pissa"], True),
        (5, True),
    ],
)
def test_other_values_of_an_initialisation(
    value: object, refused: bool, checkpoint: Checkpoint, peft: Write
) -> None:
    path = checkpoint()
    adapter, config = peft(drawn(path), init_lora_weights=value), load_config(path)
    if refused:
        with pytest.raises(core.UnsupportedModelError, match="init_lora_weights="):
            read_adapter(adapter, config)
    else:
        assert read_adapter(adapter, config).layers


def test_values_of_the_table_are_those_that_were_measured() -> None:
    measured = {value for value in MOVED_BY if value not in VALUES}
    listed = {value.replace("_N", "_4") for value in INITIALISATIONS} - {"true or false", "loftq"}
    assert listed == measured


@pytest.mark.parametrize("key", [key for key, it in PEFT_KEYS.items() if it.verdict == "refused"])
def test_a_refused_key_is_named(key: str, checkpoint: Checkpoint, peft: Write) -> None:
    path = checkpoint()
    config = load_config(path)
    value = TELLING.get(key, {"any": 1} if key.endswith("_config") else True)
    with pytest.raises(core.UnsupportedModelError, match=f"{key}="):
        read_adapter(peft(drawn(path), **{key: value}), config)
    for neutral in (None, *PEFT_KEYS[key].neutral):
        assert read_adapter(peft(drawn(path), **{key: neutral}), config).layers


@pytest.mark.parametrize("key", [key for key, it in PEFT_KEYS.items() if it.verdict == "harmless"])
def test_a_harmless_key_changes_nothing(key: str, checkpoint: Checkpoint, peft: Write) -> None:
    path = checkpoint()
    config, tensors = load_config(path), drawn(path)
    plain = read_adapter(peft(tensors, "plain"), config).layers
    for name, layer in read_adapter(peft(tensors, **{key: "anything"}), config).layers.items():
        assert mx.array_equal(layer.a, plain[name].a)
        assert layer.scale == plain[name].scale


def test_an_unknown_key_is_refused_unless_it_is_empty(checkpoint: Checkpoint, peft: Write) -> None:
    path = checkpoint()
    config, tensors = load_config(path), drawn(path)
    empty: list[Any] = [None, False, [], {}, ""]
    telling: list[Any] = [True, 0, 1.5, "on", [0], {"beta": 1}]
    for value in empty:
        assert read_adapter(peft(tensors, use_zora=value), config).layers
    for value in telling:
        with pytest.raises(core.UnsupportedModelError, match=r"use_zora=.*has no such key"):
            read_adapter(peft(tensors, use_zora=value), config)


def test_tensors_of_a_layer_that_is_not_a_target_are_refused(
    checkpoint: Checkpoint, peft: Write
) -> None:
    path = checkpoint()
    config, tensors = load_config(path), drawn(path)
    for targets in (
        ["q_proj", "v_proj", "down_proj"],
        ["self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj", "lm_head"],
        [name.removesuffix(".lora_a") for name in tensors],
        ["language_model." + name.removesuffix(".lora_a") for name in tensors],
        "all-linear",
        r".*\.(q_proj|v_proj|down_proj)$",
        None,
    ):
        assert read_adapter(peft(tensors, target_modules=targets), config).layers
    more: list[dict[str, Any]] = [{"exclude_modules": ["o_proj"]}, {"layers_to_transform": [0, 1]}]
    for changes in more:
        assert read_adapter(peft(tensors, **changes), config).layers
    fewer: list[dict[str, Any]] = [{"layers_to_transform": [0]}, {"layers_to_transform": 1}]
    for changes in (*fewer, {"exclude_modules": ["down_proj"]}):
        with pytest.raises(core.InvalidModelError, match="has tensors but is not a target"):
            read_adapter(peft(tensors, **changes), config)
    for targets in (["q_proj", "v_proj"], ["proj", "q_proj", "v_proj"], [QUERY]):
        with pytest.raises(core.InvalidModelError, match="down_proj has tensors but is not a"):
            read_adapter(peft(tensors, target_modules=targets), config)


def test_patterns_of_a_multimodal_model_are_read(checkpoint: Checkpoint, peft: Write) -> None:
    path = checkpoint()
    for prefix in ("", "language_model.", "model.language_model."):
        key = prefix + (QUERY.removeprefix("model.") if prefix.startswith("model") else QUERY)
        adapter = peft(drawn(path), alpha_pattern={key: 1})
        assert read_adapter(adapter, load_config(path)).layers[QUERY].scale == 0.5


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        ("model.embed_tokens.lora_embedding_A", "adapts an embedding"),
        ("model.layers.0.self_attn.q_proj.lora_B.bias", "lora_bias"),
        ("model.embed_tokens.token_adapter.trainable_tokens_delta", "trainable_token_indices"),
        ("lm_head.modules_to_save.weight", "replaces a complete module"),
        ("model.embed_tokens.weight", "it replaces the embedding"),
        ("lm_head.weight", "it replaces the LM head"),
        ("score.weight", "a classification head"),
        ("model.layers.0.self_attn.q_proj.bias", "a bias of the model"),
        ("model.layers.0.input_layernorm.weight", "a norm of the model"),
        ("model.layers.0.self_attn.q_proj.lora_C.weight", "not named like an adapter tensor"),
    ],
)
def test_other_tensors_are_refused_as_what_they_are(
    tensor: str, words: str, checkpoint: Checkpoint, peft: Write
) -> None:
    path = checkpoint()
    adapter = peft(drawn(path))
    file = adapter / "adapter_model.safetensors"
    stored = mx.load(str(file))
    assert isinstance(stored, dict)
    mx.eval(list(stored.values()))
    mx.save_safetensors(str(file), {**stored, f"base_model.model.{tensor}": mx.zeros((2, 2))})
    with pytest.raises(core.InvalidModelError, match=words) as caught:
        read_adapter(adapter, load_config(path))
    assert tensor in str(caught.value)


# -------------------------------------------------------------------------------- mlx-lm's


def test_every_key_that_mlx_lm_writes_is_in_the_table() -> None:
    lora = pytest.importorskip("mlx_lm.lora")
    written = {option.dest for option in lora.build_parser()._actions} | set(lora.CONFIG_DEFAULTS)
    assert written - {"help"} - set(MLX_LM_KEYS) == set()
    assert set(lora.CONFIG_DEFAULTS["lora_parameters"]) <= set(MLX_LM_PARAMETERS)


def test_keys_of_mlx_lm(
    checkpoint: Checkpoint, lora: Write, caplog: pytest.LogCaptureFixture
) -> None:
    path = checkpoint()
    config, tensors = load_config(path), drawn(path)
    parameters = {"rank": 2, "scale": 2.0, "dropout": 0.1, "keys": ["self_attn.q_proj"]}
    with caplog.at_level(logging.WARNING):
        assert read_adapter(lora(tensors, iters=5, data="x"), config).layers
        assert read_adapter(lora(tensors, lora_parameters=parameters), config).layers
        assert not caplog.records
        for _ in range(2):  # said once
            assert read_adapter(lora(tensors, train_mode="cpo"), config).layers
    (record,) = caplog.records
    assert "adapter_config.json: keys without effect here: train_mode='cpo'" in record.message

    for name, value in (("alpha", 16), ("alpha", 2.0), ("use_rslora", True), ("bits", 4)):
        adapter = lora(tensors, lora_parameters={**parameters, name: value})
        with pytest.raises(core.UnsupportedModelError, match=f"lora_parameters: {name}={value}"):
            read_adapter(adapter, config)
    with pytest.raises(core.UnsupportedModelError, match="use_dora=True"):
        read_adapter(lora(tensors, use_dora=True), config)
