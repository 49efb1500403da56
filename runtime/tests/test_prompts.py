"""What keeps a prompt from being tokenised at all."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import EmptyPromptError, PromptTooLongError, RequestError
from core.kit.base import never_stop
from core_runtime.rows import checked_ids, length_error, prompt_error
from core_runtime.text.special_texts import SpecialTexts


def fewest(text: str, most: int | None) -> int:
    return -(-len(text.encode()) // most) if most else 0


def model(limit: int, most: int | None) -> Any:
    """Without a way to tokenise."""
    return SimpleNamespace(
        info=SimpleNamespace(context_length=limit, vocab_size=10),
        own_context=limit,
        tokenizer=SimpleNamespace(
            special_texts=SpecialTexts({}), fewest_tokens=lambda text: fewest(text, most)
        ),
    )


@pytest.mark.parametrize(
    ("text", "limit", "most", "least"),
    [
        ("a" * 30, 10, 3, None),
        ("a" * 31, 10, 3, 11),
        ("a" * 1000, 10, 3, 334),
        ("a" * 1000, 10, None, None),
        ("é" * 15, 10, 3, None),
        ("é" * 16, 10, 3, 11),
        ("🦊" * 8, 10, 3, 11),
    ],
)
def test_a_text_of_too_many_bytes_is_refused_unread(
    text: str, limit: int, most: int | None, least: int | None
) -> None:
    error = length_error(model(limit, most), text)
    assert getattr(error, "length", None) == least


def test_the_error_says_that_its_length_is_a_lower_bound() -> None:
    with pytest.raises(PromptTooLongError, match="too long: at least 334 tokens") as caught:
        checked_ids(model(10, 3), "a" * 1000, never_stop)
    error = caught.value
    assert (error.length, error.limit, error.at_least) == (334, 10, True)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (str(other), other.at_least) == (str(error), True)
    assert not PromptTooLongError(11, 10).at_least
    assert "at least" not in str(PromptTooLongError(11, 10))


def test_what_is_no_text_is_said_first() -> None:
    assert isinstance(prompt_error(model(10, 3), ""), EmptyPromptError)
    wrong = prompt_error(model(10, 3), "a" * 1000 + "\ud800", "continuation")
    assert type(wrong) is RequestError
    assert "continuation" in str(wrong)
    assert prompt_error(model(10, 3), "ab") is None
