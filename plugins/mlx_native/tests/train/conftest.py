"""A tiny model to train."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import core
from core_mlx_native.model import MlxModel

Load = Callable[..., MlxModel]


@pytest.fixture
def load(checkpoint: Callable[..., Path]) -> Iterator[Load]:
    """Loads the same tiny model again and again; each is closed behind the test."""
    directory = checkpoint("gemma3")
    models: list[MlxModel] = []

    def loaded(**options: Any) -> MlxModel:
        model = core.load_model(directory, backend="mlx_cpu", **options)
        assert isinstance(model, MlxModel)
        models.append(model)
        return model

    yield loaded
    for model in models:
        model.close()
