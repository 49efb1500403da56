"""Rope settings that mlx-lm loses: repaired, its logits are those of transformers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from core_mlx_lm_bridge.child.rope_keys import repaired

Rows = list[list[float]]

DATA = Path(__file__).parents[2] / "mlx_native" / "tests" / "oracle" / "data"
PROMPTS = json.loads((DATA / "prompts.json").read_text())
VISIBLE = 1e-2
TOLERANCE = 1e-3
# Configs as transformers 5 writes them, whose rope is not mlx-lm's default.
LOST = [
    "llama-4-kv-heads/llama3",
    "llama-2-kv-heads-wide-sharded/llama3",
    "llama-1-kv-head-tied/linear",
    "gemma3-4-kv-heads/linear",
    "gemma3-1-kv-head/linear",
    "qwen3-4-kv-heads-narrow/llama3",
]


def test_transformers_5_keys_become_the_older_ones() -> None:
    llama3 = {"rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0}
    assert repaired({"rope_parameters": llama3}) == {
        "rope_theta": 500_000.0,
        "rope_scaling": llama3,
    }


def test_gemma_3_has_a_section_for_each_layer_type() -> None:
    config = {
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
        "_sliding_window_pattern": 6,
    }
    changes = repaired(config)
    assert (changes["rope_theta"], changes["rope_local_base_freq"]) == (1e6, 1e4)
    assert changes["rope_scaling"]["factor"] == 8.0
    assert changes["sliding_window_pattern"] == 6


def test_what_is_there_stays() -> None:
    config = {"rope_theta": 1.0, "rope_parameters": {"rope_theta": 2.0, "rope_type": "default"}}
    assert repaired(config) == {}
    assert repaired({"rope_theta": 1.0, "rope_scaling": None}) == {}
    assert repaired({"rope_parameters": "nonsense"}) == {}


def test_nested_text_models() -> None:
    text = {"hidden_size": 8, "rope_parameters": {"rope_theta": 2.0}}
    assert repaired({"text_config": text}) == {"text_config": {**text, "rope_theta": 2.0}}


def computed(cases: list[Path], repair: bool) -> list[list[list[float]]]:
    task = {"cases": list(map(str, cases)), "prompts": PROMPTS, "repair": repair}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("load_logits.py"))],
        input=json.dumps(task),
        env={**os.environ, "MLX_DISABLE_COMPILE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[list[list[float]]] = json.loads(done.stdout)
    return found


def assembled(directory: Path, name: str) -> Path:
    weights = DATA / name.split("/")[0] / "weights"
    shutil.copytree(weights, directory)
    shutil.copy(DATA / name / "config.json", directory)
    return directory


def furthest(found: Rows, expected: Rows) -> float:
    return max(
        abs(a - b)
        for row, wanted in zip(found, expected, strict=True)
        for a, b in zip(row, wanted, strict=True)
    )


def test_logits_of_transformers(tmp_path: Path) -> None:
    """Wrong without the repair, or there would be nothing to repair; right with it."""
    cases = [assembled(tmp_path / str(n), name) for n, name in enumerate(LOST)]
    references = [json.loads((DATA / name / "reference.json").read_text()) for name in LOST]
    repaired_ones, as_they_are = computed(cases, repair=True), computed(cases, repair=False)
    worst = dict.fromkeys(LOST, 0.0)
    for name, found, plain, expected in zip(
        LOST, repaired_ones, as_they_are, references, strict=True
    ):
        assert furthest(found, expected) < TOLERANCE, name
        worst[name] = furthest(plain, expected)
    assert sum(error > VISIBLE for error in worst.values()) >= 4, worst
