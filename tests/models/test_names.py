"""A model is asked for by its path, or by a name that ``discover`` shows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import core
from core.errors import ModelNotFoundError
from core.models.locating import locate
from core.models.stores import core_models_dir, discover_stores
from tests.models.test_stores import COMMIT, gguf, home, model, ollama, snapshot

__all__ = ["home"]  # the fixture of each test


def hub(home: Path) -> Path:
    return home / ".cache" / "huggingface" / "hub"


def test_every_name_that_discover_shows_is_taken(home: Path) -> None:
    snapshot(hub(home))
    snapshot(hub(home), "models--bert-base-cased")
    gguf(snapshot(hub(home), "models--org--quantised") / "q4.gguf")
    gguf(hub(home) / "models--org--name" / "snapshots" / COMMIT / "Q8" / "q8.gguf")
    model(Path(core_models_dir()) / "mine")
    gguf(home / ".lmstudio" / "models" / "publisher" / "chat" / "chat-q4.gguf")
    gguf(ollama(home / ".ollama" / "models", "llama3"))
    shown = {found.name: found.path for found in discover_stores()}
    assert {name: locate(name) for name in shown} == shown
    assert set(shown) == {
        *("org/name", "bert-base-cased", "org/quantised", "org/quantised/q4.gguf"),
        *("mine", "publisher/chat/chat-q4.gguf", "llama3:latest", "org/name/Q8/q8.gguf"),
    }


@pytest.mark.parametrize(
    "name",
    [
        *("publisher/chat", "publisher/chat/chat-q4.gguf", "chat-q4.gguf", "chat-q4", "CHAT-Q4"),
        *("chat-", "Publisher/Chat/Chat-Q4"),
    ],
)
def test_a_name_may_be_said_in_short(home: Path, name: str) -> None:
    file = gguf(home / ".lmstudio" / "models" / "publisher" / "chat" / "chat-q4.gguf")
    model(Path(core_models_dir()) / "mine")
    assert locate(name) == str(file)


def test_ollama_has_a_tag_for_each_name(home: Path) -> None:
    root = home / ".ollama" / "models"
    blob = gguf(ollama(root, "llama3"))
    ollama(root, "mine")
    for name in ("llama3", "llama3:latest", "mine", "mine:latest"):
        assert locate(name) == str(blob)


def test_one_file_in_two_stores_has_the_names_of_both(home: Path) -> None:
    blob = gguf(ollama(home / ".ollama" / "models", "llama3"))
    link = home / ".lmstudio" / "models" / "ollama" / "copy" / "m.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    assert locate("llama3") == locate("ollama/copy") == str(link)


def test_what_exists_is_a_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model(Path(core_models_dir()) / "mine")
    here = model(home / "work" / "mine")
    monkeypatch.chdir(here.parent)
    assert locate("mine") == str(here)
    assert locate(Path("mine")) == str(here)


@pytest.mark.parametrize("text", ["./mine", "~/mine", "/mine", "a/b/c/d/mine", "mine/", "../mine"])
def test_what_looks_like_a_path_is_one(
    home: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)  # a file of that name may be next to the checkout
    model(Path(core_models_dir()) / "mine")
    assert not Path(locate(text)).exists()


def test_a_path_object_is_no_name(home: Path) -> None:
    model(Path(core_models_dir()) / "mine")
    assert locate(Path("mine")) == str(Path.cwd() / "mine")


def test_a_repository_of_hugging_face_is_its_snapshot(home: Path) -> None:
    directory = snapshot(hub(home))
    assert locate(hub(home) / "models--org--name") == str(directory)
    (hub(home) / "models--org--empty").mkdir()
    assert locate(hub(home) / "models--org--empty") == str(hub(home) / "models--org--empty")


def test_a_name_of_several_models_is_refused_with_their_paths(home: Path) -> None:
    one = gguf(home / ".lmstudio" / "models" / "publisher" / "chat" / "chat-q4.gguf")
    two = gguf(home / ".lmstudio" / "models" / "publisher" / "chat" / "chat-q8.gguf")
    for name in ("publisher/chat", "chat-q"):
        with pytest.raises(ModelNotFoundError) as caught:
            locate(name)
        assert str(one) in str(caught.value)
        assert str(two) in str(caught.value)
    assert locate("chat-q8") == str(two)


def test_an_unknown_name_is_answered_with_near_ones_and_how_to_get_more(home: Path) -> None:
    snapshot(hub(home), "models--HuggingFaceTB--SmolLM2-135M-Instruct")
    with pytest.raises(ModelNotFoundError) as caught:
        core.load_model("smolm2-135m-instruct")
    assert "Did you mean 'SmolLM2-135M-Instruct'" in str(caught.value)
    assert "`hf download ORG/NAME`" in str(caught.value)
    with pytest.raises(ModelNotFoundError) as caught:
        core.load_model("nothing-like-it")
    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize("name", ["smolm2", "smollm-2", "SmolLM2-135n"])
def test_a_misspelt_beginning_is_near_to_its_name(home: Path, name: str) -> None:
    snapshot(hub(home), "models--HuggingFaceTB--SmolLM2-135M-Instruct")
    with pytest.raises(ModelNotFoundError, match="Did you mean 'SmolLM2-135M-Instruct'"):
        locate(name)


def test_load_model_and_default_backend_take_names(home: Path) -> None:
    directory = model(Path(core_models_dir()) / "mine")
    for ask in (core.load_model, core.default_backend):
        with pytest.raises(core.CoreError) as caught:
            ask("mine")
        assert str(directory) in str(caught.value)


@pytest.mark.parametrize("text", ["a\0b", "a" * 5000])
def test_what_cannot_be_looked_at_is_no_name(home: Path, text: str) -> None:
    with pytest.raises(ModelNotFoundError, match="cannot be read"):
        core.load_model(text)


def test_what_may_not_be_looked_at_is_a_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model(Path(core_models_dir()) / "mine")

    def forbidden(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "lstat", forbidden)
    assert locate("mine") == str(Path.cwd() / "mine")
