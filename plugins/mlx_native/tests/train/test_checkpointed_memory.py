"""Gradient checkpointing takes less memory: most of what a deep model keeps is in its blocks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

import core
from core_mlx_native.model import MlxModel

DEEP = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}
MOST = 0.7  # of the memory without


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_deep_model_takes_less(checkpoint: Callable[..., Path], family: str) -> None:
    kinds = None if family == "llama" else ["sliding_attention", "full_attention"] * 6
    directory = checkpoint(family, **DEEP, layer_types=kinds)
    peaks, losses = {}, {}
    for again in (False, True):
        with core.load_model(directory, backend="mlx_cpu") as model:
            assert isinstance(model, MlxModel)
            examples = [core.TrainingExample(text="ab no " * 40)] * 4
            asked = core.TrainConfig(
                num_layers=12, iterations=2, gradient_checkpointing=again, learning_rate=1e-3
            )
            steps = model.train(examples, asked)
            model._owner.run(mx.clear_cache)
            before = model.memory().active_bytes
            model.reset_peak_memory()
            losses[again] = [step.loss for step in steps]
            peaks[again] = model.memory().peak_bytes - before
    assert losses[True] == pytest.approx(losses[False], rel=1e-5)
    assert peaks[True] <= MOST * peaks[False], peaks
