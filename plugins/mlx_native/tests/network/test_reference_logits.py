"""Logits against transformers in float32, on the tiny checkpoints of oracle/ (see its README)."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

import core
from core_mlx_native.loaded import load_decoder
from core_mlx_native.network.rotary import RotaryEmbedding, View
from core_runtime.checkpoint import families
from plugins.mlx_native.tests.network.logits import last_logits

Config = dict[str, Any]
Tensors = dict[str, mx.array]
Logits = npt.NDArray[np.float32]

DATA = Path(__file__).parents[1] / "oracle" / "data"
CASES = sorted(DATA.glob("*/*/config*.json"))
PROMPTS: list[list[int]] = json.loads((DATA / "prompts.json").read_text())
WINDOW = 8
TOLERANCE = 1e-4  # the reference itself is within 2e-5 of double precision
VISIBLE = 1e-2  # what a mistake must at least make, if the comparison is to tell


def case_id(path: Path) -> str:
    style = "older" if "older" in path.name else "newer"
    return f"{path.parts[-3]}-{path.parts[-2]}-{style}"


every_case = pytest.mark.parametrize("case", CASES, ids=case_id)


def read_config(case: Path) -> Config:
    config: Config = json.loads(case.read_text())
    return config


def reference(case: Path) -> Logits:
    return np.array(json.loads((case.parent / "reference.json").read_text()), np.float32)


def weights_of(case: Path) -> Path:
    return case.parents[1] / "weights"


def assemble(directory: Path, case: Path, config: Config | None = None) -> Path:
    """A model directory with the case's weights and its config, or another one."""
    shutil.copytree(weights_of(case), directory, dirs_exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config or read_config(case)))
    return directory


def logits_of(directory: Path, batches: Sequence[Sequence[Sequence[int]]]) -> Logits:
    """Logits of each prompt of each batch, float32 [prompts, vocab]."""
    model = load_decoder(directory, dtype="float32")
    return np.concatenate([np.array(last_logits(model, batch)) for batch in batches])


def alone(prompts: Sequence[Sequence[int]]) -> list[list[Sequence[int]]]:
    return [[prompt] for prompt in prompts]


def distance(left: Logits, right: Logits) -> float:
    assert left.shape == right.shape
    return float(np.abs(left - right).max())


def test_checkpoints_cover_what_they_are_for() -> None:
    configs = [read_config(case) for case in CASES]
    for kind in ("llama", "gemma2", "gemma3_text", "qwen2", "qwen3", "mistral"):
        own = [config for config in configs if config["model_type"] == kind]
        assert {config["num_key_value_heads"] for config in own} == {1, 2, 4}
        assert {config["tie_word_embeddings"] for config in own} == {True, False}
        assert {"rope_parameters" in config for config in own} == {True, False}
        windows = {config.get("sliding_window") for config in own}
        assert windows >= {WINDOW} or kind == "llama"
        rope_types = {"default"} if kind == "gemma2" else {"default", "linear"}
        for rope_type in rope_types | ({"llama3"} if "gemma" not in kind else set()):
            assert f'"rope_type": "{rope_type}"' in json.dumps(own)
    assert {len(prompt) for prompt in PROMPTS} >= {1, WINDOW - 1, WINDOW, WINDOW + 1, 5 * WINDOW}
    assert any((weights_of(case) / "model.safetensors.index.json").exists() for case in CASES)


@every_case
def test_prompt_alone(case: Path, tmp_path: Path) -> None:
    ours = logits_of(assemble(tmp_path, case), alone(PROMPTS))
    assert distance(ours, reference(case)) < TOLERANCE


@every_case
def test_ragged_batch(case: Path, tmp_path: Path) -> None:
    directory = assemble(tmp_path, case)
    batch = logits_of(directory, [PROMPTS])
    assert distance(batch, reference(case)) < TOLERANCE
    assert distance(batch, logits_of(directory, alone(PROMPTS))) < TOLERANCE


@every_case
def test_order_of_a_batch_does_not_matter(case: Path, tmp_path: Path) -> None:
    backwards = logits_of(assemble(tmp_path, case), [PROMPTS[::-1]])
    assert distance(backwards[::-1], reference(case)) < TOLERANCE


# ------------------------------------------------------------ other ways to write a checkpoint

RENAMES = pytest.mark.parametrize(
    "rename",
    [
        lambda name: f"language_model.{name}",
        lambda name: name.replace("model.", "model.language_model.", 1),
    ],
    ids=["language_model.model", "model.language_model"],
)


def edit_tensors(directory: Path, change: Callable[[Tensors], Tensors]) -> None:
    """Rewrite the one weights file of a directory."""
    file = directory / "model.safetensors"
    loaded = mx.load(str(file))
    assert isinstance(loaded, dict)
    tensors = change(loaded)
    mx.eval(tensors)  # before the file that they come from is written over
    mx.save_safetensors(str(file), tensors)


@RENAMES
def test_text_model_inside_a_multimodal_checkpoint(
    rename: Callable[[str], str], tmp_path: Path
) -> None:
    case = DATA / "gemma3-1-kv-head" / "linear" / "config.json"
    text = read_config(case)
    config = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 8}}
    directory = assemble(tmp_path, case, config)
    vision = {"vision_tower.vision_model.post_layernorm.weight": mx.ones(8)}
    edit_tensors(directory, lambda found: vision | {rename(name): found[name] for name in found})
    assert distance(logits_of(directory, [PROMPTS]), reference(case)) < TOLERANCE


@RENAMES
@pytest.mark.parametrize(
    "name",
    [
        "llama-2-kv-heads-biased/default",
        "gemma2-1-kv-head/default",
        "qwen2-2-kv-heads/sliding",
        "qwen3-2-kv-heads-biased/sliding",
        "mistral-2-kv-heads-wide/llama3",
    ],
)
def test_prefixed_tensor_names(name: str, rename: Callable[[str], str], tmp_path: Path) -> None:
    case = DATA / name / "config.json"
    directory = assemble(tmp_path, case)
    edit_tensors(directory, lambda found: {rename(name): found[name] for name in found})
    assert distance(logits_of(directory, [PROMPTS]), reference(case)) < TOLERANCE


@pytest.mark.parametrize("case", [case for case in CASES if "qwen" in str(case)], ids=case_id)
def test_a_qwen_is_known_by_its_norms_without_a_model_type(case: Path, tmp_path: Path) -> None:
    config = read_config(case)
    del config["model_type"], config["architectures"]
    directory = assemble(tmp_path, case, config)
    assert distance(logits_of(directory, [PROMPTS]), reference(case)) < TOLERANCE


def test_another_model_without_a_model_type_is_no_qwen(tmp_path: Path) -> None:
    case = DATA / "llama-4-kv-heads" / "llama3" / "config.json"
    config = read_config(case)
    del config["model_type"], config["architectures"]
    with pytest.raises(core.ModelError):
        logits_of(assemble(tmp_path, case, config), [PROMPTS])


def test_gemma2_has_its_caps_also_when_they_are_not_written_down(tmp_path: Path) -> None:
    case = DATA / "gemma2-1-kv-head" / "default" / "config.older.json"
    config = read_config(case)
    del config["attn_logit_softcapping"], config["final_logit_softcapping"]
    directory = assemble(tmp_path, case, config)
    assert distance(logits_of(directory, [PROMPTS]), reference(case)) < TOLERANCE


# ------------------------------------------------------------ mistakes that must show


def rope_of(config: Config, layer_type: str = "full_attention") -> Config:
    rope: Config = config.get("rope_parameters", config)
    nested: Config = rope.get(layer_type, rope)
    return nested


def shifted_rope_base(config: Config) -> None:
    rope_of(config)["rope_theta"] *= 2


def shifted_local_rope_base(config: Config) -> None:
    rope_of(config, "sliding_attention")["rope_theta"] *= 2


def forgotten_rope_scaling(config: Config) -> None:
    rope_of(config)["rope_type"] = "default"


def scaling_on_local_layers(config: Config) -> None:
    rope_of(config, "sliding_attention").update(rope_type="linear", factor=8.0)


def short_window(config: Config) -> None:
    config["sliding_window"] = WINDOW - 1


def long_window(config: Config) -> None:
    config["sliding_window"] = WINDOW + 1


def no_window(config: Config) -> None:
    config["sliding_window"] = 64


def swapped_layer_types(config: Config) -> None:
    config["layer_types"] = config["layer_types"][1:] + config["layer_types"][:1]


def all_layers_slide(config: Config) -> None:
    config["max_window_layers"] -= 1


def no_layer_slides(config: Config) -> None:
    config["use_sliding_window"] = False


def scale_by_head_dim(config: Config) -> None:
    config["query_pre_attn_scalar"] = config["head_dim"]


def attention_cap_left_out(config: Config) -> None:
    config["attn_logit_softcapping"] = None


def final_cap_left_out(config: Config) -> None:
    config["final_logit_softcapping"] = None


LLAMA, LLAMA3 = "llama-1-kv-head-tied/linear", "llama-2-kv-heads-wide-sharded/llama3"
BIASED_LLAMA = "llama-2-kv-heads-biased/default"
GEMMA2, GEMMA2_WIDE = "gemma2-1-kv-head/default", "gemma2-2-kv-heads-wide-untied/small-caps"
GEMMA3, GEMMA3_WIDE = "gemma3-1-kv-head/linear", "gemma3-2-kv-heads-wide-untied/linear"
QWEN2, QWEN2_LINEAR = "qwen2-2-kv-heads/sliding", "qwen2-1-kv-head-tied/linear"
QWEN2_LLAMA3 = "qwen2-4-kv-heads-sharded/llama3"
QWEN3, QWEN3_LINEAR = "qwen3-2-kv-heads-biased/sliding", "qwen3-1-kv-head-wide-tied/linear"
QWEN3_LLAMA3 = "qwen3-4-kv-heads-narrow/llama3"
MISTRAL, MISTRAL_LINEAR = "mistral-1-kv-head-tied/sliding", "mistral-2-kv-heads-wide/linear"
MISTRAL_LLAMA3, MISTRAL_LAYERED = (
    f"mistral-2-kv-heads-wide/{variant}" for variant in ("llama3", "layered")
)

Mistake = Callable[[Config], None]
MISTAKES: dict[str, tuple[Mistake, ...]] = {
    LLAMA: (shifted_rope_base, forgotten_rope_scaling),
    LLAMA3: (shifted_rope_base, forgotten_rope_scaling),
    BIASED_LLAMA: (shifted_rope_base,),
    GEMMA2: (
        *(shifted_rope_base, short_window, long_window, no_window, swapped_layer_types),
        *(scale_by_head_dim, attention_cap_left_out, final_cap_left_out),
    ),
    GEMMA2_WIDE: (
        *(swapped_layer_types, scale_by_head_dim, attention_cap_left_out, final_cap_left_out),
    ),
    GEMMA3: (
        *(shifted_rope_base, shifted_local_rope_base, forgotten_rope_scaling),
        *(scaling_on_local_layers, short_window, long_window, swapped_layer_types),
    ),
    GEMMA3_WIDE: (scale_by_head_dim,),
    QWEN2: (shifted_rope_base, short_window, long_window, swapped_layer_types),
    QWEN2_LINEAR: (shifted_rope_base, forgotten_rope_scaling),
    QWEN2_LLAMA3: (shifted_rope_base, forgotten_rope_scaling),
    QWEN3: (shifted_rope_base, short_window, long_window, swapped_layer_types),
    QWEN3_LINEAR: (shifted_rope_base, forgotten_rope_scaling),
    QWEN3_LLAMA3: (shifted_rope_base, forgotten_rope_scaling),
    MISTRAL: (shifted_rope_base, short_window, long_window, no_window),
    MISTRAL_LINEAR: (shifted_rope_base, forgotten_rope_scaling),
    MISTRAL_LLAMA3: (shifted_rope_base, forgotten_rope_scaling),
    MISTRAL_LAYERED: (short_window, swapped_layer_types),
}
OLDER_MISTAKES: dict[str, tuple[Mistake, ...]] = {
    QWEN2: (shifted_rope_base, all_layers_slide, no_layer_slides),
    QWEN3: (shifted_rope_base, all_layers_slide, no_layer_slides),
    MISTRAL: (short_window,),
}


@pytest.mark.parametrize(
    ("case", "mistake"),
    [
        pytest.param(DATA / name / file, mistake, id=f"{name}-{file}-{mistake.__name__}")
        for file, table in (("config.json", MISTAKES), ("config.older.json", OLDER_MISTAKES))
        for name, mistakes in table.items()
        for mistake in mistakes
    ],
)
def test_mistake_in_the_config_shows(case: Path, mistake: Mistake, tmp_path: Path) -> None:
    config = read_config(case)
    mistake(config)
    assert config != read_config(case)
    wrong = logits_of(assemble(tmp_path, case, config), [PROMPTS])
    assert distance(wrong, reference(case)) > VISIBLE


@pytest.mark.parametrize(
    ("name", "part", "neutral"),
    [
        *((BIASED_LLAMA, f"{part}_proj.bias", mx.zeros_like) for part in "qvo"),
        *((BIASED_LLAMA, f"{part}_proj.bias", mx.zeros_like) for part in ("gate", "up", "down")),
        *((QWEN2, f"{part}_proj.bias", mx.zeros_like) for part in "qkv"),
        *((QWEN3, f"{part}_proj.bias", mx.zeros_like) for part in "qkvo"),
        *((QWEN3, f"{part}_norm.weight", mx.ones_like) for part in "qk"),
        *((GEMMA3, f"{part}_norm.weight", mx.zeros_like) for part in "qk"),
    ],
)
def test_tensor_left_out_shows(
    name: str, part: str, neutral: Callable[[mx.array], mx.array], tmp_path: Path
) -> None:
    def leave_out(found: Tensors) -> Tensors:
        assert any(part in name for name in found)
        return {name: neutral(found[name]) if part in name else found[name] for name in found}

    case = DATA / name / "config.json"
    directory = assemble(tmp_path, case)
    edit_tensors(directory, leave_out)
    assert distance(logits_of(directory, [PROMPTS]), reference(case)) > VISIBLE


@pytest.mark.parametrize("name", [LLAMA, GEMMA2, GEMMA3, QWEN2, QWEN3, MISTRAL])
def test_keys_one_position_off_show(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = DATA / name / "config.json"
    kv_heads = read_config(case)["num_key_value_heads"]
    rotate = RotaryEmbedding.rotate

    def shifted(rotary: RotaryEmbedding, x: mx.array, view: View) -> mx.array:
        offset = int(x.shape[1] == kv_heads)
        return rotate(rotary, x, View(view.positions + offset, view.masks))

    monkeypatch.setattr(RotaryEmbedding, "rotate", shifted)
    assert distance(logits_of(assemble(tmp_path, case), [PROMPTS]), reference(case)) > VISIBLE


@pytest.mark.parametrize(("name", "family"), [(GEMMA2, "gemma2"), (GEMMA3, "gemma3_text")])
def test_norms_without_their_plus_one_show(
    name: str, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = DATA / name / "config.json"
    wrong = dataclasses.replace(families.FAMILIES[family], norm_offset=False)
    monkeypatch.setattr(families, "FAMILIES", {**families.FAMILIES, family: wrong})
    monkeypatch.setattr("core_runtime.checkpoint.config.FAMILIES", families.FAMILIES)
    assert distance(logits_of(assemble(tmp_path, case), [PROMPTS]), reference(case)) > VISIBLE
