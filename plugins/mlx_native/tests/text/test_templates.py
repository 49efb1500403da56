"""Which of a model's several chat templates is used."""

from __future__ import annotations

import json
from typing import Any

import pytest

import core
from core.errors import ChatTemplateError, InvalidOptionError
from runtime.tests.tiny import Checkpoint
from runtime.tests.tokenizer.templates import HI, named, put

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
