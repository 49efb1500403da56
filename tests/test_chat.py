"""Chat prompts: only the template can spell special tokens."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from core.chat import RenderedPrompt, defuse, render
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
