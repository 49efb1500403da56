"""Directories as publishers ship them, and what is refused by name."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import core
from core.registry import REGISTRY
from core_openvino.encoder.backend import Encoder
from core_openvino.encoder.families import FAMILIES
from core_runtime.checkpoint.families import ENCODERS
from plugins.openvino.tests.encoder.oracle.weights import ROWS
from plugins.openvino.tests.encoder.tiny import (
    WORDS,
    Floats,
    record,
    rows_of,
    session_of,
    write_encoder,
    write_model,
    write_modules,
    write_tokenizer,
)

TEXTS = ["a", "ab cd", "hello, world!", "it's a long text: it has more letters than most."]


def embeddings(directory: Path, **options: Any) -> Floats:
    """Return the embeddings of the texts."""
    with core.load_model(directory, backend="encoder", **options) as model:
        results = model.hidden_states(TEXTS)  # type: ignore[attr-defined]
    return np.array([result.raise_for_error().states for result in results])


def changed(directory: Path, name: str, **values: Any) -> None:
    """Change keys of a JSON file; None removes one."""
    path = directory / name
    old = json.loads(path.read_text()) if path.exists() else {}
    new = {key: value for key, value in {**old, **values}.items() if value is not None}
    path.write_text(json.dumps(new))


def test_other_backends_name_this_one_for_every_family() -> None:
    assert FAMILIES.keys() == ENCODERS


# ---------------------------------------------------------------------------------- tensors


def test_prefixes_old_names_and_position_ids(tmp_path: Path) -> None:
    plain = write_model(tmp_path / "plain")
    expected = embeddings(plain)
    odd = write_model(tmp_path / "odd")
    tensors = {
        f"bert.{name}".replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): value
        for name, value in load_file(odd / "model.safetensors").items()
    }
    tensors["bert.embeddings.position_ids"] = np.arange(64, dtype=np.int64)[None]
    tensors["cls.predictions.bias"] = np.zeros(64, np.float32)
    save_file(tensors, odd / "model.safetensors")
    assert np.array_equal(embeddings(odd), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("embeddings.LayerNorm.bias"), "embeddings.LayerNorm.bias is missing"),
        (lambda t: t.update(strange=np.zeros(3, np.float32)), "strange is not part of this model"),
        (
            lambda t: t.update({"embeddings.LayerNorm.bias": np.zeros(3, np.float32)}),
            r"has shape \[3\], not \[32\]",
        ),
        (
            lambda t: t.update({"embeddings.LayerNorm.bias": np.zeros(32, np.int64)}),
            "has dtype I64",
        ),
    ],
)
def test_tensors_that_do_not_fit(tmp_path: Path, change: Any, message: str) -> None:
    directory = write_model(tmp_path / "model")
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors")
    with pytest.raises(core.InvalidModelError, match=message):
        core.load_model(directory, backend="encoder")


def test_int8_refuses_weights_that_are_not_numbers(tmp_path: Path) -> None:
    directory = write_model(tmp_path / "model")
    tensors = load_file(directory / "model.safetensors")
    tensors["encoder.layer.1.output.dense.weight"][0, 0] = np.nan
    save_file(tensors, directory / "model.safetensors")
    with core.load_model(directory, options={"dtype": "float32"}) as model:
        [state] = model.hidden_states(["ab"])  # type: ignore[attr-defined]
        [label] = model.classify(["ab"], labels=["c", "d"])
    assert isinstance(state.error, core.InvalidModelError)
    assert isinstance(label.error, core.InvalidModelError)
    with pytest.raises(core.CoreError, match=r"NaN or infinite|none of VNNI"):
        core.load_model(directory, options={"dtype": "int8"})


# ----------------------------------------------------------------------------------- config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ({"is_decoder": True}, "is_decoder=True"),
        ({"hidden_act": "quick_gelu"}, "hidden_act='quick_gelu'"),
        ({"num_attention_heads": 5}, "does not divide hidden_size 32"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"architectures": ["BertForTokenClassification"]}, "is neither an encoder nor"),
        ({"architectures": "BertModel"}, "not a list of names"),
        ({"model_type": "t5"}, "'t5' is not an encoder that is supported"),
    ],
)
def test_a_config_that_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    directory = write_model(tmp_path / "model", **changes)
    reason = Encoder().refusal(directory)
    assert reason is not None
    assert message in reason
    with pytest.raises(core.ModelError) as raised:
        core.load_model(directory, backend="encoder")
    assert message in str(raised.value)


def test_labels_of_their_own(tmp_path: Path) -> None:
    names = {"0": "joy", "1": "anger", "2": "fear"}
    directory = write_model(tmp_path / "model", "bert-nli", id2label=names)
    reason = Encoder().refusal(directory)
    assert reason is not None
    assert "joy, anger, fear" in reason
    assert "entailment" in reason


@pytest.mark.parametrize("case", ["bert", "xlm-roberta", "deberta-v2", "modernbert-nli"])
def test_only_encoder_reads_encoders(tmp_path: Path, case: str) -> None:
    directory = write_model(tmp_path / "model", case)
    verdict = REGISTRY.verdict(directory, None)
    assert verdict.backends == ("encoder",)
    choice = REGISTRY.choose(directory)
    reasons = dict(choice.skipped)
    for other in ("openvino", "mlx_cpu"):
        assert "backend='encoder'" in reasons.get(other, "backend='encoder'")
    assert "backend='encoder'" in reasons["openvino"]


def test_a_probe_imports_no_library(tmp_path: Path) -> None:
    code = (
        "import sys; from core_openvino.encoder.backend import Encoder; b = Encoder()\n"
        "assert b.unavailable_reason() is None; b.devices()\n"
        "assert b.refusal(sys.argv[1]) is None, b.refusal(sys.argv[1])\n"
        "heavy = {'openvino', 'openvino_telemetry', 'numpy', 'tokenizers'} & sys.modules.keys()\n"
        "assert not heavy, heavy"
    )
    command = [sys.executable, "-c", code, str(write_model(tmp_path / "model"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_missing_files_are_named(tmp_path: Path) -> None:
    directory = write_model(tmp_path / "model")
    (directory / "tokenizer.json").unlink()
    (directory / "vocab.txt").write_text("\n".join(WORDS))
    assert "only vocab.txt" in str(Encoder().refusal(directory))
    (directory / "model.safetensors").unlink()
    assert Encoder().refusal(directory) is not None


# ------------------------------------------------------------------------- the steps around


@pytest.mark.parametrize(
    "mode", ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
)
def test_poolings(tmp_path: Path, mode: str) -> None:
    """Each from all states of a text, which weighted sums of it give one by one."""
    directory = write_encoder(tmp_path, "bert")
    rows = rows_of(ROWS)
    means = session_of(directory, pooling=["mean"]).compute(rows)
    firsts = session_of(directory, pooling=["cls"]).compute(rows)
    pooled = session_of(directory, pooling=[mode]).compute(rows)
    joined = session_of(directory, pooling=["cls", mode, "mean"]).compute(rows)
    sizes = np.array([len(row) for row in ROWS])[:, None]
    assert np.allclose(joined, np.hstack([firsts, pooled, means]), atol=1e-6)
    if mode == "cls":
        assert np.allclose(pooled, np.array(record("bert")["firsts"]), atol=1e-5)
    elif mode == "mean_sqrt_len_tokens":
        assert np.allclose(pooled, means * np.sqrt(sizes), atol=1e-5)
    elif mode == "max":
        assert (pooled >= np.maximum(means, firsts) - 1e-6).all()
    elif mode == "lasttoken":
        reread = session_of(directory, pooling=["mean"])
        assert np.allclose(pooled[0], reread.compute(rows[:1])[0], atol=1e-6)  # of one token
        assert not np.allclose(pooled[1:], firsts[1:], atol=1e-2)
    elif mode == "weightedmean":
        last = session_of(directory, pooling=["lasttoken"]).compute(rows)
        assert np.abs(pooled - last).sum() < np.abs(means - last).sum()


def test_names_of_poolings_and_a_norm(tmp_path: Path) -> None:
    """The keys of sentence-transformers 2 and of 6, and the norm."""
    older = write_model(tmp_path / "older")
    write_modules(older, "Pooling", pooling_mode_cls_token=True, pooling_mode_mean_tokens=False)
    newer = write_model(tmp_path / "newer")
    write_modules(newer, "Pooling", pooling_mode="cls", embedding_dimension=32)
    normed = write_model(tmp_path / "normed")
    write_modules(normed, "Pooling", "Normalize", pooling_mode=["cls"])
    plain = embeddings(older)
    assert np.array_equal(embeddings(newer), plain)
    unit = embeddings(normed)
    assert np.allclose(np.linalg.norm(unit, axis=1), 1)
    assert np.allclose(unit * np.linalg.norm(plain, axis=1)[:, None], plain, atol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_dense_layers(tmp_path: Path, bias: bool) -> None:
    directory = write_model(tmp_path / "model")
    write_modules(directory, "Pooling")
    pooled = embeddings(directory)
    write_modules(directory, "Pooling", "Dense")
    folder = directory / "2_Dense"
    config = {"in_features": 32, "out_features": 8, "bias": bias}
    (folder / "config.json").write_text(
        json.dumps({**config, "activation_function": "torch.nn.modules.activation.Tanh"})
    )
    random = np.random.default_rng(0)
    weight, add = (random.normal(size=shape).astype(np.float32) for shape in ((8, 32), (8,)))
    tensors = {"linear.weight": weight} | ({"linear.bias": add} if bias else {})
    save_file(tensors, folder / "model.safetensors")
    assert np.allclose(embeddings(directory), np.tanh(pooled @ weight.T + bias * add), atol=1e-5)
    with core.load_model(directory) as model:
        assert model.info.hidden_size == 8


@pytest.mark.parametrize(
    ("kinds", "pooling", "message"),
    [
        (["Pooling", "LayerNorm"], {}, "the module 'LayerNorm' in '2_LayerNorm'"),
        (["CNN", "Pooling"], {}, "the module 'CNN' in '1_CNN'"),
        ([], {}, "has no Pooling module"),
        (["Pooling"], {"pooling_mode": "attention"}, r"pooling \['attention'\]"),
    ],
)
def test_modules_that_are_refused(
    tmp_path: Path, kinds: list[str], pooling: dict[str, Any], message: str
) -> None:
    directory = write_model(tmp_path / "model")
    write_modules(directory, *kinds, **pooling)
    with pytest.raises(core.UnsupportedModelError, match=message):
        core.load_model(directory)


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({}, "it holds a dict, not a list"),
        ([{"type": "x.Transformer"}], "a module has no type or path"),
        ([{"type": "x.Pooling", "path": "../1_Pooling"}], "is outside the directory"),
        ([{"type": "x.Pooling", "path": "1_Missing"}], "1_Missing"),
    ],
)
def test_modules_that_are_broken(tmp_path: Path, modules: Any, message: str) -> None:
    directory = write_model(tmp_path / "model")
    (directory / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(core.ModelError, match=message):
        core.load_model(directory)


def test_without_modules_the_mean_and_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = write_model(tmp_path / "model", "bert-masked")
    write_modules(directory, "Pooling")
    expected = embeddings(directory)
    (directory / "modules.json").unlink()
    (directory / "1_Pooling" / "config.json").unlink()
    with caplog.at_level(logging.WARNING):
        assert np.array_equal(embeddings(directory), expected)
    assert f"{directory} has no modules.json" in caplog.text
    assert "the mean of all tokens" in caplog.text


def test_the_default_prompt(tmp_path: Path) -> None:
    directory = write_model(tmp_path / "model")
    plain = embeddings(directory)
    prompts = {"query": "query: ", "passage": "passage: "}
    changed(directory, "config_sentence_transformers.json", prompts=prompts)
    assert np.array_equal(embeddings(directory), plain)  # none is the default
    changed(directory, "config_sentence_transformers.json", default_prompt_name="query")
    with core.load_model(directory) as model:
        choices = {choice.name: choice for choice in model.choices()}  # type: ignore[attr-defined]
        ids = model.encode("ab")  # type: ignore[attr-defined]
        given = model.hidden_states(["ab"])[0].states  # type: ignore[attr-defined]
    assert choices["prompt"].value == "'query: '"
    assert "default_prompt_name is 'query'" in choices["prompt"].reason
    changed(directory, "config_sentence_transformers.json", default_prompt_name=None)
    with core.load_model(directory) as model:
        assert model.encode("query: ab") == ids  # type: ignore[attr-defined]
        [result] = model.hidden_states(["query: ab"])  # type: ignore[attr-defined]
        assert result.states == given
    changed(directory, "config_sentence_transformers.json", default_prompt_name="other")
    with pytest.raises(core.InvalidModelError, match="default_prompt_name is 'other'"):
        core.load_model(directory)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 64),
        ({"sentence_bert_config.json": {"max_seq_length": 20}}, 20),
        ({"sentence_bert_config.json": {"max_seq_length": 500}}, 64),
        ({"tokenizer_config.json": {"model_max_length": 30}}, 30),
        ({"tokenizer_config.json": {"model_max_length": 10**30}}, 64),
    ],
)
def test_the_longest_text(tmp_path: Path, files: dict[str, Any], expected: int) -> None:
    directory = write_model(tmp_path / "model")
    for name, values in files.items():
        changed(directory, name, **values)
    with core.load_model(directory) as model:
        assert model.info.context_length == expected
    with core.load_model(directory, context_len=40) as model:
        assert model.info.context_length == 40
    with pytest.raises(core.InvalidOptionError, match="at most 64, the model's positions"):
        core.load_model(directory, context_len=65)


def test_positions_start_after_the_padding(tmp_path: Path) -> None:
    directory = write_encoder(tmp_path / "model", "roberta")
    write_tokenizer(directory)
    write_modules(directory, "Pooling")
    with core.load_model(directory) as model:
        assert model.info.context_length == 64
        [fits, long] = model.hidden_states(["a" * 62, "a" * 63])  # type: ignore[attr-defined]
    assert fits.error is None
    assert isinstance(long.error, core.PromptTooLongError)


def test_a_text_in_lower_case(tmp_path: Path) -> None:
    directory = write_model(tmp_path / "model")
    state = json.loads((directory / "tokenizer.json").read_text())
    state["normalizer"]["lowercase"] = False
    (directory / "tokenizer.json").write_text(json.dumps(state))
    changed(directory, "sentence_bert_config.json", do_lower_case=True)
    with core.load_model(directory) as model:
        assert model.encode("AB") == model.encode("ab")  # type: ignore[attr-defined]


# --------------------------------------------------------------------- what is broken or lacks


def test_positions_start_after_another_padding(tmp_path: Path) -> None:
    """As in transformers, where RoBERTa's first position is the padding's id plus 1."""
    one = write_model(tmp_path / "one", "roberta")
    two = write_model(tmp_path / "two", "roberta", pad_token_id=0)
    tensors = load_file(two / "model.safetensors")
    name = next(name for name in tensors if name.endswith("position_embeddings.weight"))
    tensors[name] = np.roll(tensors[name], -1, axis=0)
    save_file(tensors, two / "model.safetensors")
    assert np.array_equal(embeddings(one), embeddings(two))
    with core.load_model(two) as model:
        assert model.info.context_length == 65


@pytest.mark.parametrize("prompt", [{"default_prompt_name": ["q"]}, {"prompts": {"q": "\ud800"}}])
def test_a_prompt_that_is_broken(tmp_path: Path, prompt: dict[str, Any]) -> None:
    directory = write_model(tmp_path / "model")
    values = {"prompts": {"q": "q: "}, "default_prompt_name": "q", **prompt}
    changed(directory, "config_sentence_transformers.json", **values)
    with pytest.raises(core.InvalidModelError, match="default_prompt_name is"):
        core.load_model(directory)


def test_a_pooling_that_is_broken_or_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = write_model(tmp_path / "model")
    write_modules(directory, "Pooling", pooling_mode=["cls"])
    expected = embeddings(directory)
    (directory / "modules.json").unlink()
    with caplog.at_level(logging.WARNING):
        assert np.array_equal(embeddings(directory), expected)
    assert "only the pooling in 1_Pooling/config.json is read" in caplog.text
    write_modules(directory, "Pooling", pooling_mode=[["mean"]])
    with pytest.raises(core.UnsupportedModelError, match="pooling"):
        core.load_model(directory)
    (directory / "1_Pooling" / "config.json").unlink()
    with pytest.raises(core.InvalidModelError, match=r"modules\.json names a module whose file"):
        core.load_model(directory)


def test_a_dense_layer_of_integers(tmp_path: Path) -> None:
    directory = write_model(tmp_path / "model")
    write_modules(directory, "Pooling", "Dense")
    folder = directory / "2_Dense"
    (folder / "config.json").write_text(json.dumps({"out_features": 8, "bias": False}))
    save_file({"linear.weight": np.ones((8, 32), np.int64)}, folder / "model.safetensors")
    with pytest.raises(core.InvalidModelError, match="needs floats of these shapes"):
        core.load_model(directory)


def test_a_tokenizer_without_its_unknown_token(tmp_path: Path) -> None:
    directory = write_model(tmp_path / "model")
    state = json.loads((directory / "tokenizer.json").read_text())
    del state["model"]["vocab"]["[UNK]"]
    (directory / "tokenizer.json").write_text(json.dumps(state))
    with core.load_model(directory) as model:
        with pytest.raises(core.TokenizerError, match="Missing"):
            model.classify(["\u4e2d"], labels=["a", "b"])
        assert model.classify(["a"], labels=["a", "b"])[0].error is None


@pytest.mark.parametrize("lower", [False, True])
def test_a_case_that_tokenizer_json_contradicts(
    tmp_path: Path, lower: bool, caplog: pytest.LogCaptureFixture
) -> None:
    directory = write_model(tmp_path / "model")
    changed(directory, "tokenizer_config.json", do_lower_case=lower)
    with caplog.at_level(logging.WARNING), core.load_model(directory):
        pass
    assert ("do_lower_case=False" in caplog.text) is not lower
