"""A name in Ollama's store stands for all layers of its manifest, not for the model's alone."""

from __future__ import annotations

import json
import logging
import os
import re
import struct
from pathlib import Path

import pytest

import core
from core.errors import InvalidOptionError, UnsupportedModelError
from core.models import ollama
from core.models.locating import locate, located
from core.models.stores import discover_in, discover_stores
from core.options import LoadConfig
from core.registry import REGISTRY
from core.testing import FakeBackend, FakeModel
from tests.models.test_stores import gguf, home

__all__ = ["home"]  # the fixture of each test

DIGESTS = {"base": "a" * 64, "lora": "b" * 64, "x": "c" * 64, "y": "d" * 64}


@pytest.fixture
def root(home: Path) -> Path:
    root = home / ".ollama" / "models"
    for name in ("base", "lora"):
        gguf(blob(root, name))
    return root


def blob(root: Path, name: str) -> Path:
    return root / "blobs" / f"sha256-{DIGESTS[name]}"


def create(root: Path, name: str, *layers: str, space: str = "library") -> None:
    """Write a manifest; a layer is ``KIND`` or ``KIND=BLOB``, by default the model's base."""
    manifest = root / "manifests" / "registry.ollama.ai" / space / name / "latest"
    manifest.parent.mkdir(parents=True)
    pairs = [layer.partition("=") for layer in layers]
    content = [
        {
            "mediaType": f"application/vnd.ollama.image.{kind}",
            "digest": f"sha256:{DIGESTS[of or 'base']}",
        }
        for kind, _, of in pairs
    ]
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": content}))


def with_template(path: Path) -> Path:
    """Write a GGUF header with a chat template."""
    key, value = b"tokenizer.chat_template", b"{{ messages }}"
    pair = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(value)) + value
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + pair)
    return path


def test_names_of_other_layers_are_listed_apart(root: Path) -> None:
    create(root, "plain", "model", "license=x")
    create(root, "copy", "license=y", "model")
    create(root, "clerk", "model", "system=x")
    create(root, "other-clerk", "model", "system=y")
    create(root, "tuned", "model", "adapter=lora", "params=x")
    create(root, "seeing", "model", "projector=x", "strange=y", "prompt=x", "messages=y")
    shown = {model.name: (model.parts, model.adapters) for model in discover_stores()}
    assert shown == {
        "copy:latest": ((), ()),
        "clerk:latest": (("system",), ()),
        "other-clerk:latest": (("system",), ()),
        "tuned:latest": (("adapter", "params"), (str(blob(root, "lora")),)),
        "seeing:latest": (("messages", "projector", "strange", "template"), ()),
    }
    assert {model.path for model in discover_stores()} == {str(blob(root, "base"))}
    assert sorted(model.name for model in discover_in(root)) == sorted(shown)
    [plain] = [model for model in discover_stores() if not model.parts]
    assert plain.names == ("copy:latest", "copy", "plain:latest", "plain")


def test_a_model_is_given_by_its_path_or_by_its_name(root: Path) -> None:
    create(root, "plain", "model")
    create(root, "tuned", "model", "adapter=lora")
    handles = {model.name: model.handle for model in discover_stores()}
    assert handles == {"plain:latest": str(blob(root, "base")), "tuned:latest": "tuned:latest"}


class Recording(FakeBackend):
    """A backend for GGUF that keeps what it was asked to load."""

    formats = frozenset({"gguf"})

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> FakeModel:
        self.loaded = os.fspath(path), config.adapter_path
        return FakeModel()


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Recording:
    recording = Recording(name="recording")
    monkeypatch.setitem(REGISTRY._registered, "recording", recording)
    return recording


def test_a_name_is_loaded_with_its_adapter(root: Path, backend: Recording) -> None:
    create(root, "plain", "model")
    create(root, "tuned", "model", "adapter=lora")
    base, lora = str(blob(root, "base")), str(blob(root, "lora"))
    for name, adapter in {"plain": None, "tuned": lora, "tuned:latest": lora, base: None}.items():
        core.load_model(name, backend="recording").close()
        assert backend.loaded == (base, adapter)
    core.load_model("plain", backend="recording", adapter_path=lora).close()
    assert backend.loaded == (base, lora)


def test_another_adapter_is_refused(root: Path, backend: Recording) -> None:
    create(root, "tuned", "model", "adapter=lora")
    with pytest.raises(InvalidOptionError, match=r"'tuned:latest' already has an adapter"):
        core.load_model("tuned", backend="recording", adapter_path="mine.gguf")


def test_where_one_path_is_needed_the_base_does_not_stand_for_all(root: Path) -> None:
    create(root, "tuned", "model", "adapter=lora")
    base, lora = blob(root, "base"), blob(root, "lora")
    with pytest.raises(UnsupportedModelError, match=rf"model: {base}\n  adapter_path: {lora}"):
        locate("tuned")
    assert located("tuned").path == locate(base) == str(base)


def test_several_adapters_are_refused(root: Path, backend: Recording) -> None:
    create(root, "two", "model", "adapter=lora", "adapter=x")
    with pytest.raises(UnsupportedModelError, match="several adapters"):
        core.load_model("two", backend="recording")
    create(root, "gone", "model", "adapter=y")
    problems = {model.name: model.problem for model in discover_stores()}
    assert problems == {
        "two:latest": "its adapter's file is missing",
        "gone:latest": "its adapter's file is missing",
    }
    gguf(blob(root, "x"))
    [two] = [model for model in discover_stores() if model.name == "two:latest"]
    assert two.problem == "it has 2 adapters; only one can be loaded"


def test_single_tensors_are_listed_and_refused(root: Path, backend: Recording) -> None:
    create(root, "image", "tensor=x", "tensor=y", "json=x")
    [model] = discover_stores()
    assert (model.name, model.parts) == ("image:latest", ("tensor",))
    assert "single tensors" in model.problem
    with pytest.raises(UnsupportedModelError, match="single tensors"):
        locate("image")
    with pytest.raises(UnsupportedModelError, match="single tensors"):
        core.load_model("image", backend="recording")


def test_a_model_of_the_cloud_is_not_on_this_machine(root: Path) -> None:
    create(root, "cloud")
    assert discover_stores() == []


@pytest.mark.parametrize(
    ("layers", "level", "words"),
    [
        ((), 0, ()),
        (("license=x", "embed=x"), 0, ()),
        (("system=x",), logging.WARNING, ("pass it as a system message", "--system clerk")),
        (("messages=x",), logging.WARNING, ("before your own",)),
        (("strange=x",), logging.WARNING, ("strange: not applied", "not known")),
        (("params=x",), logging.INFO, ("pass them as options",)),
        (("projector=x",), logging.INFO, ("images are not supported",)),
        (("template=x",), logging.WARNING, ("the GGUF file has none",)),
        (("template=x", "own"), logging.INFO, ("the chat template in the GGUF file is used",)),
    ],
)
def test_what_is_not_applied_is_said_at_load(
    root: Path,
    backend: Recording,
    caplog: pytest.LogCaptureFixture,
    layers: tuple[str, ...],
    level: int,
    words: tuple[str, ...],
) -> None:
    if "own" in layers:
        with_template(blob(root, "base"))
    create(root, "clerk", "model", *(layer for layer in layers if layer != "own"))
    caplog.set_level(logging.INFO, logger="core")
    core.load_model("clerk", backend="recording").close()
    records = [item for item in caplog.records if "Ollama's store" in item.getMessage()]
    assert [record.levelno for record in records] == ([level] if level else [])
    text = "".join(record.getMessage() for record in records).replace("clerk:latest", "clerk")
    assert [word for word in words if word not in text] == []


def test_every_layer_of_ollamas_is_known() -> None:
    known = {*ollama.LAYERS, *ollama._SILENT, *ollama._ALIASES}
    # server/images.go, manifest/layer.go and server/create.go of ollama, August 2026
    published = "model draft embed adapter projector prompt template system params messages license"
    assert known == {*published.split(), "tensor", "json"}


def test_the_page_has_every_layer() -> None:
    page = (Path(__file__).parents[2] / "docs" / "model_files_gguf.md").read_text()
    table = page.split("| layer | what", 1)[1].split("\n\n", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    listed = {kind: row[1] for row in rows for kind in re.findall(r"`(\w+)`", row[0])}
    assert listed.keys() == {*ollama.LAYERS, *ollama._SILENT}
    for kind, use in ollama.LAYERS.items():
        said = listed[kind].replace("refused", "not read")
        assert said.split(":")[0].split(",")[0] in use, kind


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("ollama.service", 'Environment="OLLAMA_MODELS={}"'),
        ("ollama.service.d/override.conf", 'Environment="A=1" "OLLAMA_MODELS={}" "B=2"'),
        ("ollama.service.d/10-models.conf", "Environment=A=1 OLLAMA_MODELS={} B=2"),
    ],
)
def test_the_store_of_the_service(
    home: Path, monkeypatch: pytest.MonkeyPatch, unit: str, text: str
) -> None:
    moved = home / "data" / "models"
    monkeypatch.setattr(ollama, "_SYSTEMD", str(home / "systemd"))
    file = home / "systemd" / unit
    file.parent.mkdir(parents=True)
    commented = f"#Environment=OLLAMA_MODELS={home / 'old'}\n"
    file.write_text(f"[Service]\n{commented}{text.format(moved)}\n")
    gguf(blob(moved, "base"))
    create(moved, "mine", "model")
    assert str(moved) in ollama.ollama_roots()
    assert str(home / "old") not in ollama.ollama_roots()
    assert locate("mine") == str(blob(moved, "base"))
    os.mkfifo(file.parent / "pipe.conf")
    file.write_text(text.format("~\0a"))
    assert len(ollama.ollama_roots()) == 3
    monkeypatch.setenv("OLLAMA_MODELS", str(home / "own"))
    assert ollama.ollama_roots() == [str(home / "own")]
