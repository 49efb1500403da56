"""Templates of published models, rendered as transformers renders them (chat_templates/)."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import models

from core.errors import ChatTemplateError, InvalidOptionError
from core.kit.chat import family_template
from core.options import GenerateConfig
from core.types import Message
from core_runtime.chat.prompts import compile_template
from core_runtime.tokenizer.model_tokenizer import Tokenizer

DATA = Path(__file__).parents[1] / "chat_templates"
RECORD: dict[str, Any] = json.loads((DATA / "renderings.json").read_text(encoding="utf-8"))
TEMPLATES: dict[str, dict[str, Any]] = RECORD["templates"]
CONVERSATIONS = {
    name: [Message(role, content) for role, content in turns]
    for name, turns in json.loads((DATA / "conversations.json").read_text("utf-8")).items()
}
SPECIAL: dict[str, Any] = json.loads((DATA / "special_tokens.json").read_text(encoding="utf-8"))

every_template = pytest.mark.parametrize("name", TEMPLATES)


def tokenizer_with(directory: Path, name: str) -> Tokenizer:
    """A tokenizer with one template, of which every mark is a special token and text is nothing."""
    library = Library(models.BPE())
    library.add_special_tokens(SPECIAL["all"])
    library.save(str(directory / "tokenizer.json"))
    source = (DATA / "templates" / f"{name}.jinja").read_bytes()
    (directory / "chat_template.jinja").write_bytes(source)
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": SPECIAL["bos"][name]})
    )
    (directory / "config.json").write_text("{}")
    return Tokenizer.from_directory(directory)


def test_record_covers_what_it_is_for() -> None:
    files = {path.stem for path in (DATA / "templates").iterdir()}
    assert files == set(TEMPLATES)
    assert len(CONVERSATIONS) == 10
    for found in TEMPLATES.values():
        assert {*found["prompts"], *found["refusals"]} == set(CONVERSATIONS)


@every_template
def test_prompts_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_with(tmp_path, name)
    with patch("core_runtime.chat.prompts.datetime", wraps=datetime) as clock:
        clock.now.return_value = datetime.fromisoformat(RECORD["now"])
        for title, prompt in TEMPLATES[name]["prompts"].items():
            assert tokenizer.render_chat(CONVERSATIONS[title]) == prompt, title


@pytest.mark.parametrize("name", [name for name in TEMPLATES if TEMPLATES[name]["variables"]])
def test_variables_do_what_they_do_in_transformers(name: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_with(tmp_path, name)
    for record in TEMPLATES[name]["variables"]:
        config = GenerateConfig(chat_template_kwargs=record["variables"])
        for title, prompt in record["prompts"].items():
            found = tokenizer.render_chat(CONVERSATIONS[title], config=config)
            assert found == prompt, (title, record["variables"])


@every_template
def test_a_variable_that_is_never_read_is_refused(name: str, tmp_path: Path) -> None:
    config = GenerateConfig(chat_template_kwargs={"enable_thinkin": False})
    with pytest.raises(InvalidOptionError, match="'enable_thinkin' is not valid") as raised:
        tokenizer_with(tmp_path, name).render_chat(CONVERSATIONS["question"], config=config)
    hint = "did you mean 'enable_thinking'" in str(raised.value)
    assert (raised.value.value, hint) == ("enable_thinkin", bool(TEMPLATES[name]["variables"]))


@every_template
def test_the_last_message_is_continued_as_by_transformers(name: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_with(tmp_path, name)
    config = GenerateConfig(continue_final_message=True)
    with patch("core_runtime.chat.prompts.datetime", wraps=datetime) as clock:
        clock.now.return_value = datetime.fromisoformat(RECORD["now"])
        for title, expected in TEMPLATES[name]["continued"].items():
            turns = CONVERSATIONS[title]
            last = max(n for n, turn in enumerate(turns) if turn.role == "assistant")
            content = turns[last].content
            if expected is None:
                with pytest.raises(ChatTemplateError):
                    tokenizer.render_chat(turns[: last + 1], config=config)
                continue
            found = tokenizer.render_chat(turns[: last + 1], config=config)
            assert found.endswith(content), title
            if content and expected.endswith(content):
                assert found == expected, title
            else:  # the template trims contents, and transformers trims the prompt's end
                before = expected.removesuffix(content.strip()).rstrip()
                assert found.removesuffix(content).rstrip() == before, title


@pytest.mark.parametrize("name", [name for name in TEMPLATES if TEMPLATES[name]["refusals"]])
def test_refusals_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_with(tmp_path, name)
    for title, reason in TEMPLATES[name]["refusals"].items():
        with pytest.raises(ChatTemplateError) as raised:
            tokenizer.render_chat(CONVERSATIONS[title])
        assert reason in str(raised.value), title


@every_template
def test_only_the_template_writes_special_tokens(name: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_with(tmp_path, name)
    spelled = CONVERSATIONS["special tokens"]
    innocent = [Message(message.role, "x") for message in spelled]
    ids = [tokenizer.encode(tokenizer.render_chat(messages)) for messages in (spelled, innocent)]
    assert ids[0] == ids[1]
    assert len(ids[0]) >= 2 * len(spelled)


@pytest.mark.parametrize(
    ("model_type", "mark", "name"),
    [
        ("gemma2", "<start_of_turn>", "gemma-2"),
        ("gemma3_text", "<start_of_turn>", "gemma-3"),
        ("llama", "<|start_header_id|>", "llama-3"),
        ("qwen3", "<|im_start|>", "qwen3-instruct-2507"),
    ],
)
def test_formats_of_families_are_those_of_their_models(
    model_type: str, mark: str, name: str
) -> None:
    source = family_template(model_type, [mark])
    assert source is not None
    render = compile_template(source, {"bos_token": SPECIAL["bos"][name] or ""})
    prompts = TEMPLATES[name]["prompts"]
    assert {title: render(CONVERSATIONS[title]) for title in prompts} == prompts
