"""A model that is made to say special tokens, to compute NaN and infinity, and to chat."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import core
from plugins.mlx_lm_bridge.tests.tiny_checkpoint import USER, write


@pytest.fixture(scope="module")
def model(
    tmp_path_factory: pytest.TempPathFactory, fast_blas: dict[str, str]
) -> Iterator[core.TextModel]:
    directory = write(tmp_path_factory.mktemp("tiny") / "model")
    with core.load_model(directory, backend="mlx_lm", options={"env": fast_blas}) as loaded:
        yield loaded


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"return_logprobs": True},
        {"temperature": 1e-3, "seed": 1, "top_p": 0.9},
        {"repeat_penalty": 1.1, "return_logprobs": True},
    ],
    ids=str,
)
@pytest.mark.parametrize(("prompt", "before"), [("!", ""), ("#", ""), ("$", "!"), ("%", "#")])
def test_logits_that_are_infinite_end_the_stream_with_an_error(
    model: core.TextModel, prompt: str, before: str, options: dict[str, Any]
) -> None:
    stream = model.generate(prompt, max_tokens=6, **options)
    found: list[core.Token] = []
    with pytest.raises(core.InvalidModelError, match="NaN or infinite"):
        found.extend(stream)
    assert ("".join(token.text for token in found), stream.finish_reason) == (before, "error")
    assert model.generate("a", max_tokens=2).text() == "bc"


def test_a_stop_string_that_is_a_special_token(model: core.TextModel) -> None:
    """mlx-lm shows special tokens in its texts."""
    assert model.generate("a", max_tokens=5).text() == f"bc{USER}de"
    for stop, left in ((USER, "bc"), (f"c{USER}", "b"), (f"{USER}d", "bc")):
        stream = model.generate("a", max_tokens=5, stop=stop)
        assert "".join(token.text for token in stream) == left
        assert stream.finish_reason == "stop"
        assert stream.metrics.generated_tokens == len(left)
    stream = model.generate("a", max_tokens=5, stop=f"{USER}x")
    assert "".join(token.text for token in stream) == f"bc{USER}de"
    assert stream.finish_reason == "length"


def test_no_awaited_stream_stays_however_it_ends(
    model: core.TextModel, left_of_streams: Callable[..., dict[str, int]]
) -> None:
    left = left_of_streams(model, "a", tokens=5)
    assert not any(left.values()), left


TEMPLATE = (
    "{% for m in messages %}{{ m.role[0] }}{{ m.name if m.name and m.role == 'user' }}"
    "{{ m.content }}{% endfor %}{{ 'A' if add_generation_prompt }}{{ 'qq' if quiet }}{{ tag }}"
)
USERS, SAID = core.Message("user", "abc"), core.Message("assistant", "de ")


@pytest.fixture(scope="module")
def chats(
    tmp_path_factory: pytest.TempPathFactory, fast_blas: dict[str, str]
) -> Iterator[core.TextModel]:
    directory = write(tmp_path_factory.mktemp("chats") / "model")
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    with core.load_model(directory, backend="mlx_lm", options={"env": fast_blas}) as loaded:
        yield loaded


@pytest.mark.parametrize(
    ("turns", "options", "prompt"),
    [
        ([USERS], {}, "uabcA"),
        ([USERS], {"chat_template_kwargs": {"quiet": True}}, "uabcAqq"),
        ([USERS], {"chat_template_kwargs": {"quiet": False}}, "uabcA"),
        ([USERS], {"chat_template_kwargs": {"tag": USER}}, f"uabcA{USER}"),
        ([USERS, SAID], {}, "uabcade A"),
        ([USERS, SAID], {"continue_final_message": True}, "uabcade "),
        ([core.Message("user", "abc", "ann")], {}, "uannabcA"),
    ],
)
def test_the_template_is_told_what_is_asked(
    chats: core.TextModel, turns: list[core.Message], options: Any, prompt: str
) -> None:
    stream = chats.chat(turns, max_tokens=1, **options)
    list(stream)
    assert stream.metrics.prompt_tokens == len(prompt)  # a byte a token, of plain text


@pytest.mark.parametrize(
    ("turns", "options", "error", "words"),
    [
        (
            *([USERS], {"chat_template_kwargs": {"quite": 1}}, core.InvalidOptionError),
            r"'quite' is not valid.*\(.*quiet, tag\); did you mean 'quiet'",
        ),
        ([USERS], {"continue_final_message": True}, core.ChatTemplateError, "not the user's"),
        (
            *([USERS, core.Message("assistant", "b", "bob")], {}, core.ChatTemplateError),
            r"no place for a message's name \('bob'\)",
        ),
    ],
)
def test_what_the_template_has_no_place_for_is_refused(
    chats: core.TextModel, turns: Any, options: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        chats.chat(turns, max_tokens=1, **options).text()
    assert chats.chat([USERS], max_tokens=1).text() is not None
