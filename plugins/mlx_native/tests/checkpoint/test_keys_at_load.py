"""Keys of config.json and generation_config.json at the load of a model: logged, or refused."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import core
from core_mlx_native.backend import Cpu
from core_runtime.checkpoint.generation_keys import GENERATION_KEYS
from runtime.tests.tiny import Checkpoint

TELLING: dict[str, Any] = {
    "sequence_bias": [[[1], -5.0]],
    "forced_bos_token_id": 0,  # an id as good as any other
    "forced_eos_token_id": [2],
}


def with_generation(path: Path, **keys: Any) -> Path:
    (path / "generation_config.json").write_text(json.dumps(keys))
    return path


def test_what_is_noted_is_logged_once_at_the_load(
    checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    path = checkpoint(new_trick=[1])
    with caplog.at_level(logging.WARNING, logger="core_runtime"):
        assert Cpu().refusal(path) is None
        assert not caplog.records
        for _ in range(2):
            Cpu().load_model(path, core.LoadConfig()).close()
    (record,) = caplog.records
    assert record.name == "core_runtime"
    assert f"{path}/config.json: keys without effect here: new_trick=[1]" in record.message


@pytest.mark.parametrize(
    "name",
    [
        *("Qwen3ForSequenceClassification", "LlamaForTokenClassification", "Qwen3Model"),
        *("Qwen2ForProcessRewardModel", "Qwen2ForRewardModel", "Gemma3TextModel"),
        "LlamaForQuestionAnswering",
    ],
)
def test_another_head_is_refused_by_its_architecture(checkpoint: Checkpoint, name: str) -> None:
    path = checkpoint()
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "architectures": [name]}))
    with pytest.raises(core.UnsupportedModelError, match=f"architectures=\\['{name}'\\]"):
        Cpu().load_model(path, core.LoadConfig())
    assert name in (Cpu().refusal(path) or "")  # discovery and default_backend know it, too


def test_generation_keys(checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture) -> None:
    path = checkpoint()
    caplog.set_level(logging.WARNING, logger="core_runtime")
    harmless = {name: 1 for name, key in GENERATION_KEYS.items() if key.verdict == "harmless"}
    neutral = {
        name: key.neutral[0] if key.neutral else None for name, key in GENERATION_KEYS.items()
    }
    for keys in (harmless, neutral):
        Cpu().load_model(with_generation(path, **keys), core.LoadConfig()).close()
    assert not caplog.records

    for name, key in GENERATION_KEYS.items():
        if key.verdict == "refused":
            value = TELLING.get(name, [[1]])
            with pytest.raises(core.UnsupportedModelError, match=f"{name}=.*Remove the key"):
                Cpu().load_model(with_generation(path, **{name: value}), core.LoadConfig())

    reported = [name for name, key in GENERATION_KEYS.items() if key.verdict == "reported"]
    with_generation(path, unheard_of=True, **dict.fromkeys(reported, 3))
    Cpu().load_model(path, core.LoadConfig()).close()
    (record,) = caplog.records
    for name in (*reported, "unheard_of"):
        assert f"{name}=" in record.message
