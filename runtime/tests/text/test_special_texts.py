"""A plain prompt that spells a special token is said to, once; all others cost little."""

from __future__ import annotations

import pytest

from core.kit.chat import RenderedPrompt
from core_runtime.text.special_texts import SpecialTexts

NAMED = ("<s>", "<|im_start|>", "<|im_end|>", "x", "[A]")
TOKENS = {text: id for id, text in enumerate((*NAMED, *(f"<unused{i}>" for i in range(5000))))}


@pytest.mark.parametrize(
    ("prompt", "token"),
    [
        ("<|im_start|>user\nHi<|im_end|>", "<|im_start|>"),
        ("a <|im_ <s> b", "<s>"),
        ("<|im<|im_end|>", "<|im_end|>"),
        ("<unused4999>", "<unused4999>"),
        ("[A]", "[A]"),
        ("x <|im_star|> < s> <unused5000> [B]", None),
        ("", None),
        (RenderedPrompt("<s>x"), None),
    ],
)
def test_what_is_spelled_is_said(
    caplog: pytest.LogCaptureFixture, prompt: str, token: str | None
) -> None:
    SpecialTexts(TOKENS).look(prompt)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (token is not None)
    if token is not None:
        assert repr(token) in said[0]
        assert "core.RenderedPrompt(prompt)" in said[0]


def test_it_is_said_once_for_a_model(caplog: pytest.LogCaptureFixture) -> None:
    one, other = SpecialTexts(TOKENS), SpecialTexts(TOKENS)
    for _ in range(3):
        one.look("plain")
        one.look("<s>")
    assert len(caplog.records) == 1
    other.look("<s>")
    assert len(caplog.records) == 2


def test_a_model_without_special_tokens_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    SpecialTexts({}).look("<s>")
    assert not caplog.records


@pytest.mark.parametrize(
    ("stops", "ids"),
    [
        ((), set()),
        (("\n", "user"), set()),
        (("<|im_end|>",), {2}),
        (("a<|im_end|>\n<|im_start|>", "<s>"), {0, 1, 2}),
        (("<unused49>", "<unused4999"), {5 + 49}),
        (("ax",), {3}),
    ],
)
def test_the_tokens_that_stop_strings_hold(stops: tuple[str, ...], ids: set[int]) -> None:
    special = SpecialTexts(TOKENS)
    for _ in range(2):
        found = special.named(stops)
        assert found == {id: text for text, id in TOKENS.items() if id in ids}
        special.named(("<|im_start|>",))  # of another call
