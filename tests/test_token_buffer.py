"""Tokens held back until their text is settled: compared with a search in the whole text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.kit.text_stream import TokenBuffer
from core.types import Token


def fed(texts: list[str], tail: str, stops: tuple[str, ...]) -> tuple[list[Token], TokenBuffer]:
    buffer = TokenBuffer(stops)
    found: list[Token] = []
    for number, text in enumerate(texts):
        found += buffer.hold(Token(number, text), incomplete=not text)
        if buffer.stopped:
            return found, buffer
    return found + buffer.release(tail), buffer


def cut(text: str, stops: tuple[str, ...]) -> str:
    """Up to the stop string that begins first."""
    starts = [text.find(stop) for stop in stops if stop in text]
    return text[: min(starts)] if starts else text


small = st.text("ab", max_size=3)


@given(st.lists(small, max_size=8), small, st.lists(st.text("ab", min_size=1, max_size=4)))
def test_text_is_cut_where_a_search_would(texts: list[str], tail: str, stops: list[str]) -> None:
    tail = tail if texts and not texts[-1] else ""  # only an open token has text to come
    found, buffer = fed(texts, tail, tuple(stops))
    whole = "".join(texts) + tail
    assert "".join(token.text for token in found) == cut(whole, tuple(stops))
    assert buffer.stopped == any(stop in whole for stop in stops)
    assert [token.id for token in found] == list(range(len(found)))
    if not buffer.stopped:
        assert len(found) == len(texts)


def test_a_token_that_begins_the_stop_string_is_not_given() -> None:
    found, _ = fed(["a", "", "é", "b"], "", ("é",))
    assert [token.text for token in found] == ["a"]


def test_tail_belongs_to_the_last_token() -> None:
    found, _ = fed(["a", "", ""], "\ufffd", ())
    assert [token.text for token in found] == ["a", "", "\ufffd"]


def test_tokens_come_out_at_once() -> None:
    buffer = TokenBuffer(("xyz",))
    assert [t.text for t in buffer.hold(Token(1, "a"))] == ["a"]
    assert buffer.hold(Token(2, "x")) == []
    assert [t.text for t in buffer.hold(Token(3, "b"))] == ["x", "b"]
