"""Where chat templates are looked for, and which of several is used."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.errors import TokenizerError
from core_runtime.tokenizer.model_tokenizer import Tokenizer
from runtime.tests.tiny import Checkpoint
from runtime.tests.tokenizer.templates import HI, named, put

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
