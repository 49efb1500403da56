"""A named backend is asked first, and models in formats of their own are found and chosen."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import core
from core import registry
from core.models.discovery import described_by
from core.models.locating import locate
from core.models.stores import discover_stores, model_at
from core.types import DiscoveredModel

Use = Callable[..., None]


class Onnx:
    """A backend with a format of its own, which is loaded where the backend is named."""

    name, protocol = "onnx", core.PROTOCOL_VERSION
    capabilities: frozenset[core.Capability] = frozenset({core.Capability.GENERATE})
    formats = frozenset({"onnx"})
    reason: str | None = None

    def available(self) -> bool:
        return self.reason is None

    def unavailable_reason(self) -> str | None:
        return self.reason

    def load_model(self, path: str | os.PathLike[str], config: core.LoadConfig) -> Any:
        return Loaded(self.name, path)


class Loaded(core.TextModelBase):
    """What was handed to a backend."""

    model_type = "onnx"

    def __init__(self, backend: str, path: str | os.PathLike[str]) -> None:
        super().__init__(backend)
        self.backend, self.path = backend, path


class Finding(Onnx):
    """The same, and NAME.onnx is its own to it, and each directory with a genai.json."""

    name = "finding"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def describe_model(self, path: str, /) -> DiscoveredModel | None:
        self.asked.append(path)
        whole = os.path.isfile(os.path.join(path, "genai.json"))
        if not (whole or path.endswith(".onnx")):
            return None
        size = 1 if path.startswith("onnx:") else os.stat(path).st_size
        problem = "" if size or whole else "an empty file"
        return DiscoveredModel(path, "phi", 4, 32, 1, "onnx", size, "", problem=problem)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, use_plugins: Use) -> registry.Registry:
    """Nothing is installed but what a test registers."""
    use_plugins()
    fresh = registry.Registry()
    monkeypatch.setattr("core.api.REGISTRY", fresh)
    monkeypatch.setattr("core.registry.REGISTRY", fresh)
    return fresh


def put(path: Path, data: bytes = b"weights") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def safetensors(directory: Path, *names: str) -> Path:
    put(directory / "config.json", b'{"model_type": "phi"}')
    for name in names:
        put(directory / name, (2).to_bytes(8, "little") + b"{}")
    return directory


# --------------------------------------------------------------------------- a named backend


def empty(path: Path) -> Path:
    path.mkdir()
    return path


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


THERE: dict[str, Callable[[Path], Path]] = {
    "a file": lambda folder: put(folder / "model.onnx"),
    "a text": lambda folder: put(folder / "notes.txt"),
    "no GGUF": lambda folder: put(folder / "page.gguf", b"<html>"),
    "a directory": lambda folder: put(folder / "dir" / "genai_config.json").parent,
    "nothing in it": lambda folder: empty(folder / "empty"),
    "a pipe": lambda folder: pipe(folder / "pipe"),
}


@pytest.mark.parametrize("what", THERE)
def test_a_named_backend_gets_whatever_is_there(tmp_path: Path, what: str) -> None:
    path = THERE[what](tmp_path)
    core.register(Onnx())
    model: Any = core.load_model(path, backend="onnx")
    assert model.path == str(path)


@pytest.mark.parametrize(
    "address",
    [
        "grpc://host:50051/model#name",
        "s3://bucket/prefix/model",
        "hf://org/name@revision",
        "GRPC://Host/",
    ],
)
def test_a_named_backend_gets_an_address_of_any_scheme_as_it_is(address: str) -> None:
    core.register(Onnx())
    model: Any = core.load_model(address, backend="onnx")
    assert model.path == address


def test_no_address_keeps_a_secret(tmp_path: Path) -> None:
    core.register(Onnx())
    for address in ("s3://key:secret@bucket/model", "hf://secret@org/name", "http://a:secret@b"):
        with pytest.raises(core.ModelNotFoundError, match="a user or a password") as caught:
            core.load_model(address, backend="onnx")
        assert "secret" not in str(caught.value)


def test_an_address_that_nobody_was_named_for() -> None:
    core.register(Onnx())
    with pytest.raises(core.ModelNotFoundError, match=r"only http:// and https://") as caught:
        core.load_model("s3://bucket/model")
    assert "onnx: it reads onnx; if this is such a model, select it: backend='onnx'" in str(
        caught.value
    )


def test_what_is_not_there_is_not_handed_on(tmp_path: Path) -> None:
    core.register(Onnx())
    for path in (tmp_path / "model.onnx", "a-name-that-no-model-has"):
        with pytest.raises(core.ModelNotFoundError, match="Model not found"):
            core.load_model(path, backend="onnx")


def test_a_backend_that_cannot_run_says_so_before_the_format_counts(tmp_path: Path) -> None:
    off = Onnx()
    off.reason = "no driver"
    core.register(off)
    for path in (put(tmp_path / "m.gguf", b"GGUF"), put(tmp_path / "m.onnx")):
        with pytest.raises(core.BackendUnavailableError, match="no driver"):
            core.load_model(path, backend="onnx")


def test_a_model_in_a_format_of_others_is_refused_unless_it_is_called_ones_own(
    tmp_path: Path,
) -> None:
    directory = safetensors(tmp_path / "model", "model.safetensors")
    core.register(Onnx())
    core.register(Finding())
    for name in ("onnx", "finding"):
        with pytest.raises(core.UnsupportedModelError, match=r"only loads onnx; .* is safetensors"):
            core.load_model(directory, backend=name)
    put(directory / "genai.json")
    assert core.load_model(directory, backend="finding").model_type == "onnx"
    with pytest.raises(core.UnsupportedModelError):
        core.load_model(directory, backend="onnx")


# --------------------------------------------------------------------------- discovery


def test_a_model_is_found_and_chosen_by_default(tmp_path: Path) -> None:
    file = put(tmp_path / "models" / "m.onnx")
    put(tmp_path / "models" / "notes.txt")
    core.register(Onnx())
    assert core.discover(tmp_path) == []
    core.register(Finding())
    (found,) = core.discover(tmp_path)
    assert (found.path, found.format, found.source, found.names) == (
        *(str(file), "onnx", "directory"),
        (),
    )
    assert found.modified == file.stat().st_mtime
    assert core.discover(file) == [found]
    assert model_at(file) == found
    model: Any = core.load_model(file)
    assert (model.backend, model.path) == ("finding", str(file))
    choice = registry.REGISTRY.choose(file)
    assert "finding is the first backend" in choice.reason
    assert "reads onnx, can run on this machine" in choice.reason
    assert choice.skipped == ()


def test_it_has_a_name_in_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    snapshot = tmp_path / "hub" / "models--org--name" / "snapshots" / "0a1b"
    put(snapshot.parent.parent / "refs" / "main", b"0a1b")
    put(snapshot / "genai.json")
    put(snapshot / "weights.onnx")
    file = put(tmp_path / "core" / "models" / "m.onnx")
    core.register(Finding())
    assert [(model.source, model.path) for model in core.discover()] == [
        ("core", str(file)),
        ("huggingface", str(snapshot)),
    ]
    assert (locate("m.onnx"), locate("org/name"), locate("name")) == (
        *(str(file), str(snapshot)),
        str(snapshot),
    )
    model: Any = core.load_model("org/name")
    assert model.path == str(snapshot)


def test_backends_are_looked_for_once_in_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: registry.Registry
) -> None:
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    for number in range(5):
        repository = tmp_path / "huggingface" / "hub" / f"models--org--{number}"
        put(repository / "snapshots" / "0a1b" / "m.onnx")
    core.register(Finding())
    looked: list[object] = []
    describers = installed.describers

    def counted() -> object:
        looked.append(describers)
        return describers()

    monkeypatch.setattr(installed, "describers", counted)
    assert len(discover_stores()) == 5
    assert len(core.discover(tmp_path, depth=9)) == 5
    assert len(looked) == 2


def test_the_files_of_a_model_are_not_asked_about(tmp_path: Path) -> None:
    directory = put(tmp_path / "whole" / "genai.json").parent
    put(directory / "part.onnx")
    finding = Finding()
    core.register(finding)
    assert [model.path for model in core.discover(tmp_path)] == [str(directory)]
    assert str(directory / "part.onnx") not in finding.asked
    assert str(directory) in finding.asked


def test_a_directory_with_one_model_says_to_give_that(tmp_path: Path) -> None:
    file = put(tmp_path / "m.onnx")
    core.register(Finding())
    with pytest.raises(core.ModelNotFoundError, match="but contains one") as caught:
        core.load_model(tmp_path)
    assert f"Pass its path: {str(file)!r}." in str(caught.value)


def test_a_problem_keeps_it_from_being_chosen(tmp_path: Path) -> None:
    file = put(tmp_path / "m.onnx", b"")
    core.register(Finding())
    (found,) = core.discover(tmp_path)
    assert found.problem == "an empty file"
    (verdict,) = registry.REGISTRY.judge([found])
    assert (verdict.backends, verdict.why_nobody) == ((), "an empty file")
    with pytest.raises(core.InvalidModelError, match="cannot be loaded: an empty file"):
        core.load_model(file)
    assert core.load_model(file, backend="finding").model_type == "onnx"


def test_a_backend_that_cannot_run_here_describes_all_the_same(tmp_path: Path) -> None:
    off = Finding()
    off.reason = "no driver"
    core.register(off)
    file = put(tmp_path / "m.onnx")
    (found,) = core.discover(tmp_path)
    (verdict,) = registry.REGISTRY.judge([found])
    assert verdict.why_nobody == "the backends for onnx cannot run here"
    assert "finding: no driver" in verdict.reason
    with pytest.raises(core.BackendUnavailableError, match="finding: no driver"):
        core.load_model(file)


def test_a_description_of_cores_own_stands(tmp_path: Path) -> None:
    directory = safetensors(tmp_path / "model", "model.safetensors")
    put(directory / "genai.json")
    finding = Finding()
    core.register(finding)
    (found,) = core.discover(tmp_path)
    assert found.format == "safetensors"
    (verdict,) = registry.REGISTRY.judge([found])
    assert verdict.backends == ("finding",)

    # One that core cannot use is the other's.
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    (found,) = core.discover(tmp_path)
    assert (found.format, found.problem) == ("onnx", "")
    assert registry.REGISTRY.verdict(directory, found).backends == ("finding",)
    assert core.default_backend(directory) is finding


def test_of_two_that_claim_one_path_the_first_describes_and_both_load(tmp_path: Path) -> None:
    file = put(tmp_path / "m.onnx")
    other = Finding()
    other.name, other.formats = "a_first", frozenset({"onnx-1"})
    describe = other.describe_model

    def described(path: str) -> DiscoveredModel | None:
        model = describe(path)
        return model and replace(model, format="onnx-1")

    other.describe_model = described  # type: ignore[method-assign]
    for backend in (Finding(), other):
        core.register(backend)
    (found,) = core.discover(tmp_path)
    assert found.format == "onnx-1"
    assert registry.REGISTRY.verdict(file, found).backends == ("a_first", "finding")
    assert core.load_model(file, backend="finding").model_type == "onnx"


def test_an_address_is_described_too() -> None:
    core.register(Finding())
    address = "onnx://host/m.onnx"
    found = model_at(address)
    assert found is not None
    assert (found.path, found.source) == (address, "address")
    model: Any = core.load_model(address)
    assert (model.backend, model.path) == ("finding", address)


def test_config_json_alone_is_judged_by_those_who_load_it(tmp_path: Path) -> None:
    directory = safetensors(tmp_path / "model")
    other = Onnx()
    other.formats = frozenset({"safetensors"})
    core.register(other)
    assert core.load_model(directory).model_type == "onnx"
    assert registry.REGISTRY.verdict(directory, None).backends == ("onnx",)


# --------------------------------------------------------------------------- wrong answers

USUAL = DiscoveredModel("/m", "phi", 0, 0, 1, "onnx", 1, "")


def but(path: str, **wrong: Any) -> DiscoveredModel:
    """A description that is sound but for one field."""
    return replace(USUAL, path=path, **wrong)


WRONG: dict[str, tuple[Callable[[str], object], str]] = {
    "raises": (lambda path: {"": 0}[path], "raised KeyError"),
    "exits": (lambda path: exit("usage: onnx"), "raised SystemExit: usage: onnx"),
    "a dict": (lambda path: {"path": path}, "returned a dict, not a core.DiscoveredModel"),
    "true": (lambda path: True, "returned a bool"),
    "another path": (lambda path: USUAL, "returned a model of another path ('/m')"),
    "no text": (
        lambda path: but(path, model_type=None),
        "a model whose model_type is None",
    ),
    "no number": (
        lambda path: but(path, size_bytes="7"),
        "a model whose size_bytes is '7'",
    ),
    "no format": (
        lambda path: but(path, format="ort"),
        "the format 'ort', which is not one of its formats",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_answer_is_logged_once_and_hides_no_other_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    answer, words = WRONG[what]
    wrong: Any = Finding()
    wrong.name, wrong.describe_model = "a_wrong", answer
    core.register(wrong)
    core.register(Finding())
    file = put(tmp_path / "m.onnx")
    for number in range(3):
        put(tmp_path / f"{number}.txt")

    with caplog.at_level(logging.WARNING, "core"):
        assert [model.path for model in core.discover(tmp_path)] == [str(file)]
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith("backend 'a_wrong': describe_model(")
    assert words in line
    assert described_by(wrong, str(file))[0] is None

    # Whoever loads by default is told; a named one still gets the path.
    model: Any = core.load_model(file)
    assert model.backend == "finding"
    with pytest.raises(core.ModelNotFoundError) as caught:
        core.load_model(tmp_path / "0.txt")
    assert words in str(caught.value)
    named: Any = core.load_model(file, backend="a_wrong")
    assert named.backend == "a_wrong"


def test_one_whose_members_raise_is_not_asked(tmp_path: Path) -> None:
    class Raising(Onnx):
        @property
        def describe_model(self) -> Any:
            raise OSError("no driver")

    core.register(Raising())
    core.register(Finding())
    put(tmp_path / "m.onnx")
    assert len(core.discover(tmp_path)) == 1


def test_a_broken_plugin_hides_no_model(tmp_path: Path, use_plugins: Use) -> None:
    use_plugins("broken", "exits", "future", "twin_a", "twin_b")
    core.register(Finding())
    put(tmp_path / "m.onnx")
    put(tmp_path / "config.json", json.dumps({"model_type": "phi"}).encode())
    assert [model.format for model in core.discover(tmp_path)] == ["onnx"]
