"""A plain prompt that spells a special token is said to, once; all others cost little."""

from __future__ import annotations

import pytest

from core.chat import RenderedPrompt
from core_runtime.text.special_texts import SpecialTexts

TOKENS = ("<s>", "<|im_start|>", "<|im_end|>", "x", "[A]", *(f"<unused{i}>" for i in range(5000)))


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
    SpecialTexts(()).look("<s>")
    assert not caplog.records
