"""Models whose worker is a script (fake_worker.py), and the worker's BLAS for real ones."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.options import LoadConfig
from core_mlx_lm_bridge import loading
from core_mlx_lm_bridge.backend import MlxLm
from core_mlx_lm_bridge.model import BridgeModel

Fake = Callable[..., BridgeModel]


@pytest.fixture
def fake_dir(tmp_path: Path) -> Path:
    """A directory that looks like a model's."""
    directory = tmp_path / "fake-model"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (directory / "model.safetensors").touch()
    (directory / "tokenizer.json").touch()
    return directory


@pytest.fixture
def fake(fake_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    """Loads a model that is a script; keywords are the backend's own options."""
    monkeypatch.setattr(loading, "WORKER", Path(__file__).with_name("fake_worker.py"))
    models: list[BridgeModel] = []

    def load(**options: Any) -> BridgeModel:
        options.setdefault("python", sys.executable)
        model = MlxLm().load_model(fake_dir, LoadConfig(options=options))
        models.append(model)
        return model

    yield load
    for model in models:
        model.close()


@pytest.fixture(scope="session")
def fast_blas() -> dict[str, str]:
    """Environment variables that give a worker a fast BLAS, where the MLX plugin brings one."""
    found = {
        "MLX_DISABLE_COMPILE": "1",  # its CPU JIT starts a C++ compiler
        "OPENBLAS_NUM_THREADS": "1",  # its threads wait by spinning, which a busy machine pays for
    }
    if sys.platform != "linux" or "LD_PRELOAD" in os.environ:
        return found
    if importlib.util.find_spec("core_mlx_native") is None:
        return found
    from core_mlx_native.cpu.blas_libraries import candidates, shim_path

    library = next((library.path for library in candidates()), None)
    return {**found, "LD_PRELOAD": f"{library}:{shim_path()}"} if library else found
