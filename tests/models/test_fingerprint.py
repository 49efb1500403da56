"""Which model it is: what the fingerprint sees, and what it does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import core
from core.errors import ModelNotFoundError
from core.models.fingerprint import fingerprint, fingerprint_of, remember
from core.registry import REGISTRY
from core.testing import FakeBackend, FakeModel, write_model

SIZE = 3 * 2**20


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    (directory / "tokenizer.json").write_text("[]")
    (directory / "model.safetensors").write_bytes(bytes(SIZE))
    (directory / "README.md").write_text("hello")
    return directory


def test_it_is_the_files_and_not_their_place_or_age(model: Path, tmp_path: Path) -> None:
    before = fingerprint(model)
    (model / "README.md").write_text("another")
    os.utime(model / "config.json", (0, 0))
    assert fingerprint(model.rename(tmp_path / "moved")) == before
    os.symlink(tmp_path / "moved", tmp_path / "link")
    assert fingerprint(tmp_path / "link") == before


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_it_sees_each_byte_of_a_small_file(model: Path, name: str) -> None:
    before = fingerprint(model)
    (model / name).write_text("{ ")
    assert fingerprint(model) != before


@pytest.mark.parametrize("place", [0, 2**14 - 1, SIZE - 1, SIZE - 2**14])
def test_it_sees_the_ends_of_a_large_file(model: Path, place: int) -> None:
    before = fingerprint(model)
    change(model / "model.safetensors", place, 1)
    assert fingerprint(model) != before


def test_it_sees_a_change_as_wide_as_a_layer_and_not_each_weight(model: Path) -> None:
    before = fingerprint(model)
    change(model / "model.safetensors", SIZE // 2, SIZE // 100)
    assert fingerprint(model) != before
    with (model / "model.safetensors").open("r+b") as file:
        file.write(bytes(SIZE))
    assert fingerprint(model) == before


def test_it_sees_a_size_and_a_name(model: Path) -> None:
    before = fingerprint(model)
    (model / "model.safetensors").rename(model / "other.safetensors")
    named = fingerprint(model)
    with (model / "other.safetensors").open("ab") as file:
        file.write(b"\0")
    assert len({before, named, fingerprint(model)}) == 3


def test_a_gguf_file_may_be_called_otherwise_and_has_its_other_parts(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF one")
    before = fingerprint(tmp_path / "a.gguf")
    assert fingerprint((tmp_path / "a.gguf").rename(tmp_path / "sha256-1")) == before

    first = tmp_path / "b-00001-of-00002.gguf"
    first.write_bytes(b"GGUF one")
    alone = fingerprint(first)
    (tmp_path / "b-00002-of-00002.gguf").write_bytes(b"GGUF two")
    (tmp_path / "c-00002-of-00002.gguf").write_bytes(b"GGUF two")
    both = fingerprint(first)
    assert both != alone
    (tmp_path / "c-00002-of-00002.gguf").unlink()
    assert fingerprint(first) == both


def test_an_adapter_makes_another_model(model: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapters.safetensors").write_bytes(b"one")
    one = fingerprint(model, adapter)
    (adapter / "adapters.safetensors").write_bytes(b"two")
    assert len({fingerprint(model), one, fingerprint(model, adapter)}) == 3


def test_a_loaded_model_has_that_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(write_model(tmp_path / "fake"))
    monkeypatch.setattr(REGISTRY, "_registered", {**REGISTRY._registered, "fake": FakeBackend()})
    with core.load_model(path, backend="fake") as loaded:
        assert fingerprint_of(loaded) == fingerprint(path)
        (path / "tokenizer.json").write_text("{}")  # what is loaded stays what it is
        assert fingerprint_of(loaded) != fingerprint(path)


def test_one_that_was_made_by_hand_has_that_of_its_facts() -> None:
    assert fingerprint_of(FakeModel()) == fingerprint_of(FakeModel())
    assert fingerprint_of(FakeModel()) != fingerprint_of(FakeModel(context_length=9))


def test_files_that_are_gone_are_an_error(tmp_path: Path) -> None:
    gone = FakeModel()
    remember(gone, tmp_path / "gone", None)
    with pytest.raises(ModelNotFoundError, match="gone"):
        fingerprint_of(gone)


def change(file: Path, place: int, length: int) -> None:
    with file.open("r+b") as stream:
        stream.seek(place)
        stream.write(b"\1" * length)


def test_what_lies_beside_the_weights_is_not_seen(model: Path, tmp_path: Path) -> None:
    before = fingerprint(model)
    (model / "optimizer.safetensors").write_bytes(b"state")
    (model / "adapters.safetensors").write_bytes(b"one")
    (model / "adapter_config.json").write_text("{}")
    assert fingerprint(model) == before
    with_adapter = fingerprint(model, model)  # an adapter that lies beside its model
    (model / "adapters.safetensors").write_bytes(b"another")
    assert fingerprint(model) == before != fingerprint(model, model) != with_adapter


def test_every_file_of_a_model_in_another_format_counts(tmp_path: Path) -> None:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "genai_config.json").write_text("{}")
    (directory / "model.onnx").write_bytes(b"one")
    before = fingerprint(directory)
    (directory / ".cache").write_text("who looked at it")
    assert fingerprint(directory) == before
    (directory / "model.onnx").write_bytes(b"two")
    assert fingerprint(directory) != before
