"""Where chat templates are looked for, and which of several is used."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import core
from core.errors import ChatTemplateError, InvalidOptionError, TokenizerError
from core_runtime.tokenizer.model_tokenizer import Tokenizer

Checkpoint = Callable[..., Path]

HI = [core.Message("user", "Hi")]


def named(**templates: str) -> list[dict[str, str]]:
    """The templates as a list, as tokenizer_config.json has several."""
    return [{"name": name, "template": text} for name, text in templates.items()]


def put(directory: Path, **files: Any) -> Path:
    """Write templates: ``jinja``, ``config``, ``legacy`` and ``processor`` by their places, others
    by name.
    """
    config: dict[str, Any] = {"eos_token": "</s>"}
    if "config" in files:
        config["chat_template"] = files.pop("config")
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    if "jinja" in files:
        (directory / "chat_template.jinja").write_text(files.pop("jinja"))
    if "legacy" in files:
        content = {"chat_template": files.pop("legacy")}
        (directory / "chat_template.json").write_text(json.dumps(content))
    if "processor" in files:
        content = {"chat_template": files.pop("processor"), "image_seq_length": 256}
        (directory / "processor_config.json").write_text(json.dumps(content))
    for name, text in files.items():
        (directory / "additional_chat_templates").mkdir(exist_ok=True)
        (directory / "additional_chat_templates" / f"{name}.jinja").write_text(text)
    return directory


FOUND: list[tuple[dict[str, Any], str]] = [
    ({"jinja": "a"}, "a"),
    ({"config": "b"}, "b"),
    ({"legacy": "c"}, "c"),
    ({"jinja": "a", "config": "b", "legacy": "c"}, "a"),
    ({"config": "b", "legacy": "c"}, "b"),
    ({"config": None, "legacy": "c"}, "c"),
    ({"config": named(default="d", rag="e")}, "d"),
    ({"config": named(rag="e")}, "e"),
    ({"legacy": {"default": "f", "rag": "g"}}, "f"),
    ({"legacy": named(rag="g")}, "g"),
    ({"processor": "j"}, "j"),
    ({"processor": None, "config": "b"}, "b"),
    ({"legacy": "c", "processor": "j"}, "c"),
    ({"rag": "h"}, "h"),
    ({"rag": "h", "config": "b"}, "h"),
    ({"jinja": "a", "rag": "h", "tool_use": "i"}, "a"),
]


@pytest.mark.parametrize(("files", "expected"), FOUND, ids=lambda value: json.dumps(value))
def test_a_template_is_found(checkpoint: Checkpoint, files: dict[str, Any], expected: str) -> None:
    assert Tokenizer.from_directory(put(checkpoint(), **files)).render_chat(HI) == expected


@pytest.mark.parametrize(
    ("files", "unread"),
    [
        ({"jinja": "a", "config": "a", "legacy": "a", "processor": "a"}, []),
        ({"jinja": "a", "config": "b"}, ["tokenizer_config.json"]),
        ({"jinja": "a", "config": named(default="a", rag="e")}, ["tokenizer_config.json"]),
        ({"config": "b", "legacy": "c", "processor": "j"}, ["chat_template", "processor_config"]),
        ({"rag": "h", "config": "b"}, ["tokenizer_config.json"]),
        ({"legacy": "c", "processor": "j"}, ["processor_config.json"]),
    ],
)
def test_templates_that_are_not_used_are_reported(
    checkpoint: Checkpoint,
    caplog: pytest.LogCaptureFixture,
    files: dict[str, Any],
    unread: list[str],
) -> None:
    Tokenizer.from_directory(put(checkpoint(), **files))
    for name, record in zip(unread, caplog.records, strict=True):
        assert name in record.message
        assert "chat_template, which differs from that in another file" in record.message


SEVERAL: list[dict[str, Any]] = [
    {"config": named(rag="e", tool_use="f")},
    {"legacy": {"rag": "e", "tool_use": "f"}},
    {"rag": "e", "tool_use": "f", "config": "b"},
]


@pytest.mark.parametrize("files", SEVERAL, ids=json.dumps)
def test_of_several_without_a_default_a_chat_names_them(
    checkpoint: Checkpoint, files: dict[str, Any]
) -> None:
    directory = put(checkpoint(), **files)
    with core.load_model(directory, backend="mlx_cpu") as model:
        assert isinstance(model, core.Tokenizing)
        for ask in (model.render_chat, lambda messages: list(model.chat(messages))):
            with pytest.raises(ChatTemplateError, match=r"'rag', 'tool_use'.*chat_template"):
                ask(HI)
        assert model.classify(["ab ab"], labels=["ab", "no"])[0].error is None
        assert model.batch_generate(["ab"], max_tokens=2)[0].error is None


@pytest.mark.parametrize("files", SEVERAL, ids=json.dumps)
def test_one_of_several_is_chosen_by_name(checkpoint: Checkpoint, files: dict[str, Any]) -> None:
    directory = put(checkpoint(), **files)
    for name, expected in (("rag", "e"), ("tool_use", "f")):
        options = {"chat_template": name}
        with core.load_model(directory, backend="mlx_cpu", options=options) as model:
            assert isinstance(model, core.Tokenizing)
            assert model.render_chat(HI) == expected
    for name in ("RAG", ""):
        with pytest.raises(InvalidOptionError, match=r"chat_template.*'rag', 'tool_use'"):
            core.load_model(directory, backend="mlx_cpu", options={"chat_template": name})


def test_a_name_that_is_not_there_is_refused(checkpoint: Checkpoint) -> None:
    directory = put(checkpoint())
    with pytest.raises(InvalidOptionError, match="the model has no templates"):
        core.load_model(directory, backend="mlx_cpu", options={"chat_template": "rag"})
    with pytest.raises(InvalidOptionError, match="chat_template"):
        core.load_model(directory, backend="mlx_cpu", options={"chat_template": 3})


@pytest.mark.parametrize("content", [5, [5], [{"name": "a"}], [{"template": "a"}], {"a": 5}])
@pytest.mark.parametrize("place", ["config", "legacy"])
def test_what_is_no_template_is_named(checkpoint: Checkpoint, place: str, content: object) -> None:
    with pytest.raises(TokenizerError, match=r"\.json: chat_template is "):
        Tokenizer.from_directory(put(checkpoint(), **{place: content}))


def test_a_broken_file_is_named(checkpoint: Checkpoint) -> None:
    directory = put(checkpoint(), rag="a")
    (directory / "additional_chat_templates" / "rag.jinja").write_bytes(b"\xff")
    with pytest.raises(TokenizerError, match=r"rag\.jinja is not UTF-8"):
        Tokenizer.from_directory(directory)
