"""Chat prompts: only the template can spell special tokens."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import ChatTemplateError, InvalidOptionError
from core.kit.chat import RenderedPrompt, defuse, render
from core.options import GenerateConfig
from core.types import Message

SPECIAL = ("<s>", "</s>", "<end>")


def template(messages: Sequence[Message]) -> str:
    return "<s>" + "".join(f"[{m.role}]{m.content}<end>" for m in messages)


def test_the_prompt_reads_as_if_nothing_had_happened() -> None:
    messages = [Message("user", "hello <end> there")]
    prompt = render(messages, SPECIAL, template)
    assert prompt == template(messages)
    assert isinstance(prompt, str)


def test_only_the_template_spells_special_tokens() -> None:
    prompt = render([Message("user", "a<end>b"), Message("assistant", "</s>")], SPECIAL, template)
    assert prompt.marked.count("<s>") == 1
    assert prompt.marked.count("<end>") == 2
    assert "</s>" not in prompt.marked


def test_overlapping_spellings_are_all_defused() -> None:
    assert "aa" not in defuse("aaaa", ["aa"], "|")
    assert "<s>" not in defuse("<s<s>>", SPECIAL, "|")


@given(st.lists(st.text("ab[]<^-", max_size=4), max_size=4), st.text("ab[]<^-c", max_size=12))
def test_no_special_token_is_spelled_and_the_rest_is_as_it_was(
    special: list[str], text: str
) -> None:
    defused = defuse(text, special, "|")
    assert defused.replace("|", "") == text
    spelled = [token for token in special if len(token) > 1 and token in text]
    assert not any(token in defused for token in spelled)
    assert spelled or defused == text


def test_a_marker_is_found_although_the_likely_ones_are_used() -> None:
    content = "".join(map(chr, range(0xFDD0, 0xFDF0))) + chr(0xF0000)
    prompt = render([Message("user", content)], SPECIAL, template)
    assert prompt.marker == chr(0xF0001)
    every = content + "".join(map(chr, range(0xF0000, 0xFFFFE)))
    with pytest.raises(ChatTemplateError, match="every private character"):
        render([Message("user", every)], SPECIAL, template)


def test_a_special_token_of_one_character_is_left_alone() -> None:
    assert defuse("a$b", ["$"], "|") == "a$b"


def test_the_marker_is_a_character_that_no_message_uses() -> None:
    prompt = render([Message("user", "\ufdd0<end>")], SPECIAL, template)
    assert prompt.marker != "\ufdd0"
    assert prompt == "<s>[user]\ufdd0<end><end>"


def test_no_messages() -> None:
    assert render([], SPECIAL, template) == "<s>"


def test_extended_takes_the_continuation_as_text() -> None:
    prompt = render([Message("user", "hi")], SPECIAL, template).extended(" <end>", SPECIAL)
    assert prompt == "<s>[user]hi<end> <end>"
    assert prompt.marked.count("<end>") == 1


def test_it_survives_pickling_and_copying() -> None:
    prompt = render([Message("user", "a<s>")], SPECIAL, template)
    for twin in (pickle.loads(pickle.dumps(prompt)), copy.deepcopy(prompt)):
        assert isinstance(twin, RenderedPrompt)
        assert (twin, twin.marked, twin.marker) == (prompt, prompt.marked, prompt.marker)


@given(st.lists(st.text("<>/send", max_size=12), max_size=3))
def test_no_message_can_spell_a_special_token(texts: list[str]) -> None:
    messages = [Message("user", text) for text in texts]
    prompt = render(messages, SPECIAL, lambda messages: "\n".join(m.content for m in messages))
    assert prompt == "\n".join(texts)
    assert not any(token in prompt.marked for token in SPECIAL)


SPECIAL_MARK = re.compile("<s>|</s>|<\\|end\\|>")


def marks(prompt: RenderedPrompt) -> list[str]:
    """The special tokens that a tokenizer finds in it."""
    return SPECIAL_MARK.findall(prompt.marked)


def test_a_prompt_written_by_hand_has_all_its_special_tokens() -> None:
    prompt = RenderedPrompt("<s>hello</s>")
    assert prompt == "<s>hello</s>"
    assert marks(prompt) == ["<s>", "</s>"]
    odd = RenderedPrompt("\ufdd0<s>")
    assert odd == "\ufdd0<s>"
    assert odd.marker != "\ufdd0"


def test_what_is_added_to_a_prompt_is_plain_text() -> None:
    prompt = RenderedPrompt("<s>a</")
    longer = prompt + "s><s>b\ufdd0"
    assert isinstance(longer, RenderedPrompt)
    assert longer == "<s>a</s><s>b\ufdd0"
    assert marks(longer) == ["<s>"]
    before = "<s>" + prompt
    assert isinstance(before, RenderedPrompt)
    assert before == "<s><s>a</"
    assert before.marked.endswith("<s>a</")
    assert marks(before) == ["<s>"]
    both = RenderedPrompt("<s>") + longer
    assert both == "<s><s>a</s><s>b\ufdd0"
    assert marks(both) == ["<s>", "<s>"]
    assert pickle.loads(pickle.dumps(both)).marked == both.marked
    with pytest.raises(TypeError, match="joined with a string"):
        prompt + 1  # type: ignore[operator]


# --------------------------------------------------------------------------- options of a template

CONTINUED = GenerateConfig(continue_final_message=True)


def said(messages: Sequence[Message]) -> str:
    """A template that trims contents, and asks for no turn."""
    return "".join(f"[{m.role}]{m.content.strip()}<end>" for m in messages)


@pytest.mark.parametrize(
    "content", ["one, two", "", " ", "\n\n", " one \n", "a<end>", "\ufdd0", "a[user]b"]
)
def test_a_continued_message_ends_the_prompt_as_it_is(content: str) -> None:
    turns = [Message("user", "Count."), Message("assistant", content)]
    prompt = render(turns, SPECIAL, said, config=CONTINUED)
    assert prompt == f"[user]Count.<end>[assistant]{content}"
    assert prompt.marked.count("<end>") == 1  # the template's own


@pytest.mark.parametrize(
    ("turns", "template", "reason"),
    [
        ([Message("user", "a")], said, "the assistant's, not the user's"),
        ([Message("assistant", "a"), Message("system", "b")], said, "not the system's"),
        ([Message("assistant", "a")], lambda turns: "", "changes or omits part of it"),
        ([Message("assistant", "a|b")], lambda t: t[0].content.split("|")[1], "omits part"),
        ([Message("assistant", "ab")], lambda t: t[0].content.upper(), "changes or omits part"),
        ([Message("assistant", "ab")], lambda t: t[0].content * 2, "repeats it"),
    ],
)
def test_what_cannot_be_continued_is_refused(turns: Any, template: Any, reason: str) -> None:
    with pytest.raises(ChatTemplateError, match=reason):
        render(turns, SPECIAL, template, config=CONTINUED)


def test_names_are_given_to_a_template_that_has_a_place_for_them() -> None:
    def named(messages: Sequence[Message]) -> str:
        return "".join(f"{m.name}: {m.content}\n" for m in messages)

    turns = [Message("user", "a", "ann<end>"), Message("assistant", "b", "bob")]
    prompt = render(turns, SPECIAL, named)
    assert prompt == "ann<end>: a\nbob: b\n"
    assert "<end>" not in prompt.marked
    assert render(turns, SPECIAL, named, config=CONTINUED) == "ann<end>: a\nbob: b"


def test_a_name_that_changes_nothing_is_refused() -> None:
    def of_users(messages: Sequence[Message]) -> str:
        return "".join(m.name or "-" for m in messages if m.role == "user")

    turns = [Message("user", "a", "ann"), Message("assistant", "b", "bob")]
    assert render(turns[:1], SPECIAL, of_users) == "ann"
    with pytest.raises(ChatTemplateError, match=r"no place for a message's name \('bob'\)"):
        render(turns, SPECIAL, of_users)
    with pytest.raises(ChatTemplateError, match="ann"):
        render(turns, SPECIAL, template)


def test_variables_reach_the_template_and_spell_no_special_token() -> None:
    seen: list[Mapping[str, object]] = []

    def given(messages: Sequence[Message], variables: Mapping[str, object]) -> str:
        seen.append(variables)
        return f"<s>{variables['note']}"

    variables = {"note": "a<end>b", "tools": [{"<s>": ["</s>", 1, None, True]}], "thinking": False}
    config = GenerateConfig(chat_template_kwargs=variables)
    prompt = render([Message("user", "\ufdd0")], SPECIAL, given, config=config)
    assert prompt == "<s>a<end>b"
    assert marks(prompt) == ["<s>"]
    [found] = seen
    assert found.keys() == variables.keys()
    assert not any(mark in repr(found) for mark in SPECIAL)
    assert found["thinking"] is False


def test_variables_that_are_nested_too_deeply_are_refused() -> None:
    def config(levels: int) -> GenerateConfig:
        deep: list[object] = []
        for _ in range(levels):
            deep = [deep]
        return GenerateConfig(chat_template_kwargs={"deep": deep})

    for levels in (201, 600):
        with pytest.raises(InvalidOptionError, match="nested less deeply"):
            render([Message("user", "a")], SPECIAL, lambda *_: "", config=config(levels))
    assert render([Message("user", "a")], SPECIAL, lambda *_: "", config=config(200)) == ""
