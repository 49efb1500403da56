"""llm with this plugin alone, in a folder of its own, over models that are fakes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Read by llm when it is imported: the plugins of this machine's user stay away.
os.environ["LLM_LOAD_PLUGINS"] = "infercore-llm"

import sqlite_utils
from llm.migrations import migrate

from core.api import close_shared_models
from core.registry import REGISTRY
from core.testing import FakeBackend, write_model

_STORES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "OLLAMA_MODELS", "LLAMA_CACHE")


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty log of llm: hundreds of small writes, which every test would make again."""
    path = tmp_path_factory.mktemp("llm") / "logs.db"
    log = sqlite_utils.Database(path)
    migrate(log)  # type: ignore[no-untyped-call]
    log.close()
    return path


@pytest.fixture
def homes(tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where models are found, which is empty, and where llm keeps its files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path / "llm"))
    (tmp_path / "llm").mkdir()
    shutil.copy(database, tmp_path / "llm")
    for name in _STORES:
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
