"""Which backend is chosen for a model, and what is said of the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.errors import (
    BackendUnavailableError,
    InvalidModelError,
    ModelNotFoundError,
    UnsupportedModelError,
)
from core.registry import Registry

Use = Callable[..., None]


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (tmp_path / "model.safetensors").write_bytes(b"")
    return tmp_path


def test_the_order_of_preference_decides(
    registry: Registry, use_plugins: Use, model: Path, local_backend: Any
) -> None:
    use_plugins("sound")
    for name in ("mlx_lm", "mlx_cpu"):
        registry.register(local_backend(name))
    choice = registry.choose(model)
    assert choice.backend is registry.get("mlx_cpu")
    assert registry.default(model) is choice.backend
    assert "mlx_cpu is the first backend" in choice.reason
    assert choice.skipped == ()


def test_each_one_passed_over_has_its_reason(
    registry: Registry, use_plugins: Use, model: Path, local_backend: Any
) -> None:
    use_plugins("broken", "twin_a", "twin_b", "malformed", "picky")
    registry.register(local_backend("zz_last"))
    choice = registry.choose(model)
    skipped = dict(choice.skipped)
    assert choice.backend.name == "zz_last"
    assert "libfake.so" in skipped["fake_broken"]
    assert "reads gguf; this model is safetensors" in skipped["fake_gguf_only"]
    assert "KeyError: 'hidden_size'" in skipped["fake_probe_raises"]
    assert skipped["fake_refuses"] == "it has no code for this architecture"
    assert "OSError: no driver" in skipped["fake_asking_raises"]
    assert "zz_last" not in skipped


def test_nobody_can_run_here(registry: Registry, use_plugins: Use, model: Path) -> None:
    use_plugins("unavailable", "broken")
    with pytest.raises(BackendUnavailableError) as caught:
        registry.choose(model)
    for part in ("fake_unavailable: it needs a GPU", "fake_broken:", "pip install 'core[mlx]'"):
        assert part in str(caught.value)


def test_nothing_is_installed(registry: Registry, use_plugins: Use, model: Path) -> None:
    use_plugins()
    with pytest.raises(BackendUnavailableError, match=r"no backend is installed"):
        registry.choose(model)


def test_everyone_refuses(registry: Registry, use_plugins: Use, model: Path) -> None:
    use_plugins("picky", "unavailable")
    with pytest.raises(UnsupportedModelError, match="no code for this architecture"):
        registry.choose(model)


def test_nobody_reads_the_format(
    registry: Registry, use_plugins: Use, model: Path, local_backend: Any
) -> None:
    use_plugins()
    registry.register(local_backend("fake_local"))
    (model / "config.json").unlink()
    (model / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(UnsupportedModelError) as caught:
        registry.choose(model)
    for part in ("reads safetensors; this model is gguf", "core[llama-cpp]", "infer-cli convert"):
        assert part in str(caught.value)


def test_either_format_will_do(registry: Registry, use_plugins: Use, model: Path) -> None:
    use_plugins("picky")
    (model / "model.gguf").write_bytes(b"GGUF")
    assert registry.choose(model).backend.name == "fake_gguf_only"


def test_broken_files_are_no_refusal(registry: Registry, use_plugins: Use, model: Path) -> None:
    use_plugins("picky")
    (model / "config.json").write_text("{")
    with pytest.raises(InvalidModelError, match="config"):
        registry.choose(model)
    with pytest.raises(ModelNotFoundError):
        registry.choose(model / "nowhere")
    (model / "x.gguf").write_bytes(b"GGUF")
    with pytest.raises(InvalidModelError, match="GGUF file"):
        registry.choose(model / "x.gguf")
