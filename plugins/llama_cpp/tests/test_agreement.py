"""The demo's sentences get the labels that MLX gives them, from the weights of the same files."""

from __future__ import annotations

import json
import runpy
import statistics
from pathlib import Path

import pytest

import core
from core.registry import REGISTRY

ROOT = Path(__file__).resolve().parents[3]
SENTENCES = ROOT / "examples" / "headlines.jsonl"
CLEAR_MARGIN = 0.1  # below it, rounding of activations to 8 bits may tip the scales
AGREEMENT = 0.95
MEAN_DISTANCE = 0.01  # of probabilities: that rounding makes half of it


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_same_labels_as_mlx(name: str, request: pytest.FixtureRequest) -> None:
    if "mlx_cpu" not in REGISTRY.names():
        pytest.skip("the backend mlx_cpu is not installed")
    demo = runpy.run_path(str(ROOT / "examples" / "demo.py"), run_name="demo")
    lines = SENTENCES.read_text(encoding="utf-8").splitlines()
    prompts = [demo["TEMPLATE"].format(text=json.loads(line)["text"]) for line in lines]
    model: core.TextModel = request.getfixturevalue(f"{name}_model")
    ours = model.classify(prompts, labels=demo["LABELS"])
    with core.load_model(request.getfixturevalue(f"{name}_dir"), backend="mlx_cpu") as reference:
        theirs = reference.classify(prompts, labels=demo["LABELS"])
    pairs = list(zip(ours, theirs, strict=True))
    clear = [(one, other) for one, other in pairs if (other.margin or 0.0) > CLEAR_MARGIN]
    same = sum(one.label == other.label for one, other in clear)
    assert len(clear) >= 50, "too few clear sentences to say anything"
    assert same / len(clear) >= AGREEMENT
    assert statistics.fmean(distance(*pair) for pair in pairs) < MEAN_DISTANCE


def distance(one: core.ClassifyResult, other: core.ClassifyResult) -> float:
    """Mean absolute difference of the labels' probabilities."""
    assert one.probabilities is not None, one.error
    assert other.probabilities is not None, other.error
    expected = other.probabilities
    return statistics.fmean(abs(p - expected[label]) for label, p in one.probabilities.items())
