"""Which backend is chosen for a model, and what is said of the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.choosing import with_refusals
from core.errors import (
    BackendUnavailableError,
    InvalidModelError,
    ModelNotFoundError,
    UnsupportedModelError,
)
from core.kit.support import load_needs
from core.options import LoadConfig
from core.protocols import Capability
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
    for part in (
        "fake_unavailable: it needs a GPU",
        "fake_broken:",
        "-r DIST/mlx.txt",
    ):
        assert part in str(caught.value)
    assert "'any'" not in str(caught.value)


def test_nothing_is_installed(registry: Registry, use_plugins: Use, model: Path) -> None:
    use_plugins()
    with pytest.raises(BackendUnavailableError, match=r"^No backend is installed\. To load"):
        registry.choose(model)


def test_everyone_refuses(registry: Registry, use_plugins: Use, model: Path) -> None:
    use_plugins("unavailable", "picky")
    with pytest.raises(UnsupportedModelError, match="no code for this architecture") as caught:
        registry.choose(model)
    first, *_, last = str(caught.value).splitlines()[1:]
    assert "its check of the model" in first  # a refusal, before those whose format it is not
    assert last.startswith("Not available on this machine: ")
    assert "fake_unavailable" in last
    assert "it needs a GPU" not in str(caught.value)
    assert "install" not in str(caught.value)


def test_one_that_offers_what_is_needed(
    registry: Registry, use_plugins: Use, model: Path, local_backend: Any
) -> None:
    use_plugins("picky")
    for name in ("mlx_lm", "zz_last"):
        registry.register(local_backend(name))
    registry.get("zz_last").capabilities = frozenset({Capability.CLASSIFY})  # type: ignore[misc]
    assert registry.choose(model).backend.name == "mlx_lm"
    choice = registry.choose(model, Capability.CLASSIFY)
    assert choice.backend.name == "zz_last"
    assert ("mlx_lm", "it does not support classify") in choice.skipped
    assert ("fake_refuses", "it has no code for this architecture") in choice.refusals
    assert not [name for name, _ in choice.refusals if name in ("mlx_lm", "fake_gguf_only")]


def test_one_that_supports_the_options_of_the_load(
    registry: Registry, use_plugins: Use, model: Path, local_backend: Any
) -> None:
    use_plugins()
    for name in ("openvino", "mlx_cpu"):
        registry.register(local_backend(name))
    registry.get("mlx_cpu").capabilities = frozenset(  # type: ignore[misc]
        {Capability.ADAPTERS, Capability.ROTATE}
    )
    assert registry.choose(model).backend.name == "openvino"
    assert not load_needs(LoadConfig(parallel_slots=1))
    for options in ({"adapter_path": "a"}, {"context_overflow": "rotate"}):
        needs = load_needs(LoadConfig(**options))  # type: ignore[arg-type]
        choice = registry.choose(model, *needs.values())
        assert choice.backend.name == "mlx_cpu"
        assert choice.skipped[0][0] == "openvino"
        assert choice.skipped[0][1].startswith("it does not support ")
    with pytest.raises(BackendUnavailableError, match="openvino: it does not support adapters"):
        registry.choose(model, Capability.ADAPTERS, Capability.SEED)


def test_one_that_defers_comes_last_and_is_loaded_all_the_same(
    registry: Registry, use_plugins: Use, model: Path, local_backend: Any
) -> None:
    use_plugins()
    for name in ("openvino", "mlx_lm"):
        registry.register(local_backend(name))
    backend: Any = registry.get("openvino")
    backend.deferral = lambda: "it is slower here"
    choice = registry.choose(model)
    assert choice.backend.name == "mlx_lm"
    assert choice.skipped == (("openvino", "it is slower here"),)
    assert choice.refusals == ()  # nothing is wrong with the model
    assert registry.suited("openvino", model) is backend

    registry.get("mlx_lm").formats = frozenset({"gguf"})  # type: ignore[misc]
    choice = registry.choose(model)
    assert choice.backend is backend
    assert [name for name, _ in choice.skipped] == ["mlx_lm"]


def test_the_refusal_of_the_model_comes_before_what_others_do_not_offer(
    registry: Registry, use_plugins: Use, model: Path, local_backend: Any
) -> None:
    use_plugins("picky")
    registry.register(local_backend("mlx_lm"))
    with pytest.raises(UnsupportedModelError) as caught:
        registry.choose(model, Capability.CLASSIFY)
    text = str(caught.value)
    assert 0 < text.index("no code for this architecture") < text.index("does not support classify")


def test_nobody_offers_what_is_needed(
    registry: Registry, use_plugins: Use, model: Path, local_backend: Any
) -> None:
    use_plugins("unavailable")
    registry.register(local_backend("mlx_lm"))
    with pytest.raises(BackendUnavailableError) as caught:
        registry.choose(model, Capability.CLASSIFY)
    for part in ("mlx_lm: it does not support classify", "-r DIST/mlx.txt"):
        assert part in str(caught.value)


def test_a_load_that_fails_says_first_why_the_others_refused(
    registry: Registry, use_plugins: Use, model: Path, local_backend: Any
) -> None:
    use_plugins("picky")
    registry.register(local_backend("zz_last"))
    choice = registry.choose(model)
    failure = InvalidModelError("KeyError: 'bits'. Convert it again.")
    error = with_refusals(failure, choice)
    assert type(error) is InvalidModelError
    text = str(error)
    assert 0 < text.index("no code for this") < text.index("zz_last, tried next: KeyErr")
    assert with_refusals(failure, replace(choice, refusals=())) is failure


def test_nobody_reads_the_format(
    registry: Registry, use_plugins: Use, model: Path, local_backend: Any
) -> None:
    use_plugins()
    registry.register(local_backend("fake_local"))
    (model / "config.json").unlink()
    (model / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(UnsupportedModelError) as caught:
        registry.choose(model)
    for part in ("reads safetensors; this model is gguf", "-r DIST/llama-cpp.txt"):
        assert part in str(caught.value)


def test_a_gguf_file_is_converted_where_mlx_is(
    registry: Registry, use_plugins: Use, tmp_path: Path, local_backend: Any
) -> None:
    use_plugins()
    registry.register(local_backend("mlx_cpu"))
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(UnsupportedModelError, match="infer-cli convert"):
        registry.choose(tmp_path)


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
