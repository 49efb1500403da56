"""The functions that users call, through fake distributions."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import core
from core import registry

Use = Callable[..., None]


@pytest.fixture(autouse=True)
def fresh_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = registry.Registry()
    monkeypatch.setattr("core.api.REGISTRY", fresh)
    monkeypatch.setattr("core.registry.REGISTRY", fresh)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (directory / "model.safetensors").write_bytes(b"")
    return directory


def loaded(path: Any, *arguments: Any, **options: Any) -> Any:
    """What the fake backend was asked to load: path and config."""
    return core.load_model(path, *arguments, **options)


def test_load_model_hands_on_an_absolute_path_and_the_config(
    use_plugins: Use, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_plugins("sound")
    monkeypatch.chdir(model.parent)
    config = core.LoadConfig(context_len=64, gpu_layers=0)
    path, got = loaded(model.name, config, backend="fake_sound", gpu_layers=5)
    assert path == str(model)
    assert got == core.LoadConfig(backend="fake_sound", context_len=64, gpu_layers=5)


def test_load_model_expands_the_home_directory(
    use_plugins: Use, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_plugins("sound")
    monkeypatch.setenv("HOME", str(model.parent))
    assert loaded(f"~/{model.name}")[0] == str(model)


def test_load_model_takes_the_default_backend(use_plugins: Use, model: Path) -> None:
    use_plugins("broken", "unavailable", "sound")
    assert loaded(model)[0] == str(model)
    assert core.default_backend(model).name == "fake_sound"


def test_an_unavailable_backend_asked_for_by_name(use_plugins: Use, model: Path) -> None:
    use_plugins("unavailable", "sound")
    with pytest.raises(core.BackendUnavailableError, match="it needs a GPU") as caught:
        core.load_model(model, backend="fake_unavailable")
    assert caught.value.backend == "fake_unavailable"


def test_a_format_that_the_backend_does_not_read(use_plugins: Use, model: Path) -> None:
    use_plugins("picky", "sound")
    with pytest.raises(
        core.UnsupportedModelError, match=r"only loads gguf.*is safetensors"
    ) as caught:
        core.load_model(model, backend="fake_gguf_only")
    assert "Use backend 'fake_" in str(caught.value)


def test_a_format_that_no_installed_backend_reads(use_plugins: Use, tmp_path: Path) -> None:
    use_plugins("unavailable")
    core.register(reads_nothing())
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(core.UnsupportedModelError, match=r"-r DIST/llama-cpp\.txt"):
        core.load_model(tmp_path, backend="fake_reads_nothing")


def test_the_path_is_looked_at_first(use_plugins: Use, tmp_path: Path) -> None:
    use_plugins("unavailable")
    for backend in ("", "fake_unavailable", "nobody"):
        with pytest.raises(core.ModelNotFoundError, match="nowhere"):
            core.load_model(tmp_path / "nowhere", backend=backend)


@pytest.mark.parametrize("path", [None, 5, ["model"], object])
def test_only_paths_are_looked_at(path: Any) -> None:
    with pytest.raises(TypeError, match=r"load_model\(\) takes a path to a model"):
        core.load_model(path)


def test_options_are_checked_before_the_path() -> None:
    with pytest.raises(core.InvalidOptionError, match="gpu_layers=-7"):
        core.load_model("/nowhere", gpu_layers=-7)
    with pytest.raises(TypeError, match="Did you mean 'gpu_layers'"):
        core.load_model("/nowhere", gpu_layer=1)  # type: ignore[call-arg]


def test_an_unknown_backend(use_plugins: Use, model: Path) -> None:
    use_plugins("sound")
    with pytest.raises(core.UnknownBackendError, match=r"-r DIST/mlx\.txt"):
        core.load_model(model, backend="mlx_cpu")


def test_backends_imports_no_plugin(use_plugins: Use) -> None:
    use_plugins("sound", "broken")
    sys.modules.pop("fake_sound", None)
    assert "fake_broken" in {entry.name for entry in core.backends()}
    assert "fake_sound" not in sys.modules


def test_status_and_get(use_plugins: Use) -> None:
    use_plugins("sound", "broken")
    assert core.backend_status("fake_sound").available
    assert not core.backend_status("fake_broken").available
    assert core.get_backend("fake_sound").name == "fake_sound"


def test_register_is_seen_by_every_function(use_plugins: Use) -> None:
    use_plugins()
    backend = reads_nothing()
    core.register(backend)
    assert [entry.name for entry in core.backends()] == ["fake_reads_nothing"]
    assert core.get_backend("fake_reads_nothing") is backend


def test_discover(model: Path) -> None:
    assert [found.path for found in core.discover(model)] == [str(model)]
    assert [found.path for found in core.discover(model.parent, depth=1)] == [str(model)]
    assert core.discover(model.parent, depth=0) == []
    with pytest.raises(core.ModelNotFoundError):
        core.discover(model / "nowhere")
    with pytest.raises(core.InvalidOptionError, match="depth=-1"):
        core.discover(model, depth=-1)


def test_discover_without_a_directory_looks_into_the_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    model = tmp_path / "core" / "models" / "mine"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"x")
    assert (str(model), "core") in {(found.path, found.source) for found in core.discover()}


def reads_nothing() -> Any:
    class ReadsNothing:
        name = "fake_reads_nothing"
        protocol = 2
        capabilities: frozenset[str] = frozenset()
        formats: frozenset[str] = frozenset()

        def available(self) -> bool:
            return True

        def unavailable_reason(self) -> str | None:
            return None

        def load_model(self, path: object, config: object) -> object: ...

    return ReadsNothing()


class Strict:
    """A backend that classifies, and does not take the model."""

    name, protocol = "a_strict", core.PROTOCOL_VERSION
    capabilities = frozenset({core.Capability.CLASSIFY, core.Capability.GENERATE})
    formats = frozenset({"safetensors"})

    def available(self) -> bool:
        return True

    def unavailable_reason(self) -> str | None:
        return None

    def refusal(self, path: str) -> str | None:
        return "its quantization is broken"

    def load_model(self, path: Any, config: core.LoadConfig) -> core.TextModel:
        raise NotImplementedError


class Lenient(Strict):
    """The next one, which streams only."""

    name, capabilities = "b_lenient", frozenset({core.Capability.GENERATE})

    def refusal(self, path: str) -> str | None:
        return None

    def load_model(self, path: Any, config: core.LoadConfig) -> Any:
        return core.TextModelBase(self.name)


def test_what_a_fallback_does_not_offer_is_answered_with_the_refusal_before_it(
    use_plugins: Use, model: Path
) -> None:
    use_plugins()
    core.register(Strict())
    core.register(Lenient())
    reason = "These support it but cannot load this model:\n  a_strict: its quantization is broken"
    for loaded_one in (core.load_model(model), core.load_model(model, backend="b_lenient")):
        with pytest.raises(core.UnsupportedOperationError) as caught:
            loaded_one.classify(["a"])
        assert str(caught.value) == f"Backend 'b_lenient' does not support classify. {reason}"
    with pytest.raises(core.UnsupportedOperationError, match="Supported by: a_strict"):
        core.TextModelBase("b_lenient").classify(["a"])
