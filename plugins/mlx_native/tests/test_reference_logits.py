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

from core_mlx_native import families
from core_mlx_native.loader import load_decoder
from core_mlx_native.prefill import last_logits

Config = dict[str, Any]
Logits = npt.NDArray[np.float32]

DATA = Path(__file__).parent / "oracle" / "data"
CASES = sorted(DATA.glob("*/*/config*.json"))
PROMPTS: list[list[int]] = json.loads((DATA / "prompts.json").read_text())
WINDOW = 8
TOLERANCE = 1e-4  # the reference itself is within 1e-5 of double precision
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
    decoder = load_decoder(directory, dtype="float32")
    return np.concatenate([np.array(last_logits(decoder, batch)) for batch in batches])


def alone(prompts: Sequence[Sequence[int]]) -> list[list[Sequence[int]]]:
    return [[prompt] for prompt in prompts]


def distance(left: Logits, right: Logits) -> float:
    assert left.shape == right.shape
    return float(np.abs(left - right).max())


def test_checkpoints_cover_what_they_are_for() -> None:
    configs = [read_config(case) for case in CASES]
    for kind in ("llama", "gemma3_text"):
        own = [config for config in configs if config["model_type"] == kind]
        assert {config["num_key_value_heads"] for config in own} == {1, 2, 4}
        assert {config["tie_word_embeddings"] for config in own} == {True, False}
        assert {"rope_parameters" in config for config in own} == {True, False}
    for rope_type in ("default", "linear", "llama3"):
        assert f'"rope_type": "{rope_type}"' in json.dumps(configs)
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


# ------------------------------------------------------------ a multimodal checkpoint's text model


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: f"language_model.{name}",
        lambda name: name.replace("model.", "model.language_model.", 1),
    ],
    ids=["language_model.model", "model.language_model"],
)
def test_text_model_inside_a_multimodal_checkpoint(
    rename: Callable[[str], str], tmp_path: Path
) -> None:
    case = DATA / "gemma3-1-kv-head" / "linear" / "config.json"
    text = read_config(case)
    config = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 8}}
    directory = assemble(tmp_path, case, config)
    file = str(directory / "model.safetensors")
    loaded = mx.load(file)
    assert isinstance(loaded, dict)
    tensors = {rename(name): tensor for name, tensor in loaded.items()}
    tensors["vision_tower.vision_model.post_layernorm.weight"] = mx.ones(8)
    mx.eval(tensors)
    mx.save_safetensors(file, tensors)
    assert distance(logits_of(directory, [PROMPTS]), reference(case)) < TOLERANCE


# ------------------------------------------------------------ mistakes that must show


def rope_of(config: Config, layer_type: str = "full_attention") -> Config:
    rope: Config = config["rope_parameters"]
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


def swapped_layer_types(config: Config) -> None:
    config["layer_types"] = config["layer_types"][1:] + config["layer_types"][:1]


def scale_by_head_dim(config: Config) -> None:
    config["query_pre_attn_scalar"] = config["head_dim"]


LLAMA, LLAMA3 = "llama-1-kv-head-tied/linear", "llama-2-kv-heads-wide-sharded/llama3"
GEMMA, GEMMA_WIDE = "gemma3-1-kv-head/linear", "gemma3-2-kv-heads-wide-untied/linear"


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        (LLAMA, shifted_rope_base),
        (LLAMA, forgotten_rope_scaling),
        (LLAMA3, shifted_rope_base),
        (LLAMA3, forgotten_rope_scaling),
        (GEMMA, shifted_rope_base),
        (GEMMA, shifted_local_rope_base),
        (GEMMA, forgotten_rope_scaling),
        (GEMMA, scaling_on_local_layers),
        (GEMMA, short_window),
        (GEMMA, long_window),
        (GEMMA, swapped_layer_types),
        (GEMMA_WIDE, scale_by_head_dim),
    ],
)
def test_mistake_in_the_config_shows(
    name: str, mistake: Callable[[Config], None], tmp_path: Path
) -> None:
    case = DATA / name / "config.json"
    config = read_config(case)
    mistake(config)
    assert config != read_config(case)
    wrong = logits_of(assemble(tmp_path, case, config), [PROMPTS])
    assert distance(wrong, reference(case)) > VISIBLE


def test_norms_without_their_plus_one_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = DATA / GEMMA / "config.json"
    wrong = dataclasses.replace(families.FAMILIES["gemma3_text"], norm_offset=False)
    monkeypatch.setattr(families, "FAMILIES", {**families.FAMILIES, "gemma3_text": wrong})
    monkeypatch.setattr("core_mlx_native.config.FAMILIES", families.FAMILIES)
    assert distance(logits_of(assemble(tmp_path, case), [PROMPTS]), reference(case)) > VISIBLE
