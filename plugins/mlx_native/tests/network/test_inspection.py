"""``inspect_attention``: one prompt's keys against transformers' (oracle/, see its README)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

import core
from core_mlx_native.backend import Cpu
from core_mlx_native.cpu import few_tokens
from core_mlx_native.cpu import ops as cpu_ops
from core_mlx_native.model import MlxModel
from core_mlx_native.network.rotary import RotaryEmbedding, View

Checkpoint = Callable[..., Path]
Config = dict[str, Any]
Keys = npt.NDArray[np.float32]

DATA = Path(__file__).parents[1] / "oracle" / "data"
REFERENCES = sorted(DATA.glob("*/*/keys.json"))
GEMMA3, LLAMA, QWEN3 = (path.parent for path in REFERENCES)
PROMPTS: list[list[int]] = json.loads((DATA / "prompts.json").read_text())
[PROMPT] = (ids for ids in PROMPTS if len(ids) == 23)
VOCAB_SIZE, WINDOW = 96, 8
TOLERANCE = 1e-4
VISIBLE = 1e-2  # what a mistake must at least make, if the comparison is to tell

every_case = pytest.mark.parametrize(
    "case", [GEMMA3, LLAMA, QWEN3], ids=["gemma3", "llama", "qwen3"]
)


def read_config(case: Path, name: str = "config.json") -> Config:
    config: Config = json.loads((case / name).read_text())
    return config


def reference(case: Path) -> Keys:
    """What transformers computes: [layers, KV heads, positions, head size]."""
    keys = np.array(json.loads((case / "keys.json").read_text()), np.float32)
    return keys.reshape(*keys.shape[:2], len(PROMPT), -1)


def assemble(directory: Path, case: Path, config: Config | None = None) -> Path:
    """A model directory of the case in which the text "17 4" is the ids 17 and 4."""
    shutil.copytree(case.parent / "weights", directory)
    (directory / "config.json").write_text(json.dumps(config or read_config(case)))
    numbers = {str(number): number for number in range(VOCAB_SIZE)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


def load(directory: Path, **options: Any) -> MlxModel:
    return Cpu().load_model(directory, core.LoadConfig(options=options))


def text_of(ids: list[int]) -> str:
    return " ".join(map(str, ids))


def as_array(snapshot: core.AttentionSnapshot) -> Keys:
    """[layers, KV heads, positions, head size]"""
    flat = [[np.frombuffer(head, np.float32) for head in layer] for layer in snapshot.keys]
    return np.array(flat).reshape(
        snapshot.num_layers, snapshot.num_heads, snapshot.seq_len, snapshot.head_dim
    )


def keys_of(directory: Path, ids: list[int] = PROMPT, **options: Any) -> Keys:
    with load(directory, **options) as model:
        return as_array(model.inspect_attention(text_of(ids)))


def distance(left: Keys, right: Keys) -> float:
    assert left.shape == right.shape
    return float(np.abs(left - right).max())


# ------------------------------------------------------------ against transformers


def test_references_cover_what_they_are_for() -> None:
    configs = [read_config(path.parent) for path in REFERENCES]
    kinds = {config["model_type"] for config in configs}
    assert kinds == {"gemma3_text", "llama", "qwen3"}
    for config in configs:
        assert 1 < config["num_key_value_heads"] < config["num_attention_heads"]
        if config["model_type"] != "llama":
            assert config["layer_types"].count("sliding_attention") == 1
            assert config["sliding_window"] == WINDOW < len(PROMPT)


@every_case
@pytest.mark.parametrize("name", ["config.json", "config.older.json"])
def test_keys_are_those_of_transformers(case: Path, name: str, tmp_path: Path) -> None:
    directory = assemble(tmp_path / "model", case, read_config(case, name))
    assert distance(keys_of(directory), reference(case)) < TOLERANCE


@every_case
def test_sizes_are_those_of_the_config(case: Path, tmp_path: Path) -> None:
    config = read_config(case)
    with load(assemble(tmp_path / "model", case)) as model:
        snapshot = model.inspect_attention(text_of(PROMPT))
    assert snapshot.architecture == config["model_type"]
    assert snapshot.num_layers == len(snapshot.keys) == config["num_hidden_layers"]
    assert snapshot.num_heads == config["num_key_value_heads"]
    assert snapshot.head_dim == config["head_dim"]
    assert snapshot.seq_len == len(PROMPT)
    for layer in snapshot.keys:
        assert [len(head) for head in layer] == [23 * config["head_dim"]] * snapshot.num_heads


# ------------------------------------------------------------ mistakes that must show


@every_case
@pytest.mark.parametrize("mistake", ["shifted", "unturned"])
def test_a_wrong_rope_on_the_keys_shows(
    case: Path, mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv_heads = read_config(case)["num_key_value_heads"]
    rotate = RotaryEmbedding.rotate

    def wrong_rotate(rotary: RotaryEmbedding, x: mx.array, view: View) -> mx.array:
        if x.shape[1] != kv_heads:
            return rotate(rotary, x, view)
        shifted = View(view.positions + 1, view.masks)
        return rotate(rotary, x, shifted) if mistake == "shifted" else x

    monkeypatch.setattr(RotaryEmbedding, "rotate", wrong_rotate)
    monkeypatch.setattr(cpu_ops, "_FEW_TOKENS", 0)  # those have a rope of their own
    wrong = keys_of(assemble(tmp_path / "model", case))
    assert distance(wrong[:1], reference(case)[:1]) > VISIBLE  # the first layer's own


@pytest.mark.parametrize("case", [GEMMA3, QWEN3], ids=["gemma3", "qwen3"])
def test_no_rope_in_a_short_pass_shows(
    case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_tokens, "_turned", lambda x, cosine, sine: x)
    wrong = keys_of(assemble(tmp_path / "model", case))
    assert distance(wrong[:1], reference(case)[:1]) > VISIBLE


@pytest.mark.parametrize(("case", "behind"), [(GEMMA3, 2), (QWEN3, None)], ids=["gemma3", "qwen3"])
def test_a_window_that_is_not_kept_shows_behind_its_layer(
    case: Path, behind: int | None, tmp_path: Path
) -> None:
    config = {**read_config(case), "sliding_window": 64}
    gaps = np.abs(keys_of(assemble(tmp_path / "model", case, config)) - reference(case))
    assert gaps[:2].max() < TOLERANCE  # the sliding layer's own keys do not depend on it
    if behind is not None:  # qwen3's sliding layer is the last
        assert gaps[behind, :, :WINDOW].max() < TOLERANCE
        assert gaps[behind, :, WINDOW:].max() > VISIBLE


# ------------------------------------------------------------ properties


@every_case
def test_a_prefix_has_the_same_keys(case: Path, tmp_path: Path) -> None:
    with load(assemble(tmp_path / "model", case)) as model:
        whole = as_array(model.inspect_attention(text_of(PROMPT)))
        for length in range(1, len(PROMPT)):
            part = as_array(model.inspect_attention(text_of(PROMPT[:length])))
            assert distance(part, whole[:, :, :length]) < TOLERANCE


@every_case
@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 0.05), ("bfloat16", 0.3)])
def test_low_precision_gives_float32_arrays_too(
    case: Path, dtype: str, tolerance: float, tmp_path: Path
) -> None:
    with load(assemble(tmp_path / "model", case), dtype=dtype) as model:
        snapshot = model.inspect_attention(text_of(PROMPT))
    assert {head.typecode for layer in snapshot.keys for head in layer} == {"f"}
    assert 0 < distance(as_array(snapshot), reference(case)) < tolerance


@pytest.fixture(params=["llama", "gemma3"])
def model(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> Iterator[MlxModel]:
    with Cpu().load_model(checkpoint(request.param), core.LoadConfig()) as loaded:
        yield loaded


def test_a_models_own_tokens_are_inspected(model: MlxModel) -> None:
    text = "abc no ab ab no"
    snapshot = model.inspect_attention(text)
    assert snapshot.seq_len == len(model.encode(text)) > 1
    assert snapshot.num_layers == model.info.num_layers
    assert snapshot.architecture == model.model_type
    assert not np.array_equal(*as_array(snapshot)[:2])  # each layer has keys of its own


def test_what_is_declared_is_offered(model: MlxModel) -> None:
    assert core.Capability.ATTENTION_INSPECTOR in Cpu().capabilities
    assert isinstance(model, core.AttentionInspector)


def test_a_snapshot_outlives_the_model(model: MlxModel) -> None:
    snapshot = model.inspect_attention("ab no")
    before = as_array(snapshot).copy()
    model.inspect_attention("no ab no ab no")
    model.close()
    assert np.array_equal(as_array(snapshot), before)


# ------------------------------------------------------------ refusals


def test_an_empty_prompt_is_refused(model: MlxModel) -> None:
    with pytest.raises(core.EmptyPromptError, match="prompt is empty"):
        model.inspect_attention("")


def test_the_context_is_the_limit(model: MlxModel) -> None:
    limit = model.info.context_length
    assert model.inspect_attention("x" * limit).seq_len == limit
    with pytest.raises(core.PromptTooLongError) as caught:
        model.inspect_attention("x" * (limit + 1))
    assert (caught.value.length, caught.value.limit) == (limit + 1, limit)


def test_text_that_has_no_utf8_form_is_refused(model: MlxModel) -> None:
    with pytest.raises(core.RequestError, match="lone surrogate at character 2"):
        model.inspect_attention("ab\ud800")


@pytest.mark.parametrize("prompt", [None, 7, b"ab", ["ab"], [1, 2]], ids=repr)
def test_only_a_string_is_a_prompt(model: MlxModel, prompt: Any) -> None:
    with pytest.raises(TypeError, match="inspect_attention"):
        model.inspect_attention(prompt)


def test_a_closed_model_refuses(model: MlxModel) -> None:
    model.close()
    for prompt in ("ab", ""):  # also one that would be refused anyway
        with pytest.raises(core.ModelClosedError):
            model.inspect_attention(prompt)


def test_the_model_works_after_each_refusal(model: MlxModel) -> None:
    for wrong in ("", "x" * 65, "\ud800"):
        with pytest.raises(core.RequestError):
            model.inspect_attention(wrong)
        assert model.inspect_attention("ab").seq_len == 1
