"""llm with this plugin alone, in a folder of its own, over models that are fakes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Read by llm when it is imported: the plugins of this machine's user stay away.
os.environ["LLM_LOAD_PLUGINS"] = "core-llm"

from core.registry import REGISTRY
from core.shared_models import close_shared_models
from core.testing import FakeBackend, write_model


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where models are found, which is empty, and where llm keeps its files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path / "llm"))
    for name in (
        "HF_HOME",
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
        "OLLAMA_MODELS",
        "LLAMA_CACHE",
    ):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path / "cache" / "core" / "models"
    close_shared_models()


@pytest.fixture
def fake(homes: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeBackend]:
    """Makes models of these names, and the backend that loads them."""

    def make(*names: str, **script: object) -> FakeBackend:
        for name in names:
            write_model(homes / name)
        backend = FakeBackend(name="metal", **script)  # type: ignore[arg-type]
        registered = {**REGISTRY._registered, "metal": backend}  # the first that is asked
        monkeypatch.setattr(REGISTRY, "_registered", registered)
        return backend

    return make
