"""What a terminal would obey is shown as escapes; the rest is left alone."""

from __future__ import annotations

import json

import pytest

from core.system.terminal import visible, visible_json, visible_lines

HIDDEN = {
    "escape": "\x1b[31m",
    "C1 control": "\x9b31m",
    "delete": "\x7f",
    "carriage return": "\r",
    "right to left override": "\u202e",
    "isolate": "\u2066",
    "mark": "\u200f",
    "zero width space": "\u200b",
    "byte order mark": "\ufeff",
    "line separator": "\u2028",
    "paragraph separator": "\u2029",
    "next line": "\x85",
    "tag": "\U000e0041",
    "lone surrogate": "\udcff",
}
SHOWN = ["plain", "naïve", "日本語", "👨‍👩‍👧", "می‌خواهم", "a\u00a0b", "\\x1b"]


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN)
def test_what_a_terminal_obeys_becomes_an_escape(text: str) -> None:
    for show in (visible, visible_lines):
        shown = show(f"a{text}b")
        assert shown[0] + shown[-1] == "ab"
        assert "\\" in shown
        assert not set(text[0]) & set(shown)
        assert shown.encode()


@pytest.mark.parametrize("text", SHOWN)
def test_text_that_is_seen_stays_as_it_is(text: str) -> None:
    assert visible(text) == visible_lines(text) == text


def test_lines_keep_their_ends() -> None:
    assert visible_lines("one\n\ttwo\r\n") == "one\n\ttwo\\r\n"
    assert visible("one\n\ttwo") == "one\\n\\ttwo"


@pytest.mark.parametrize("text", [*HIDDEN.values(), *SHOWN])
def test_json_says_the_same_in_escapes(text: str) -> None:
    value = {f"key{text}": [text, {"b": 'quote " and \\ '}]}
    data = json.dumps(value, ensure_ascii="\udcff" in text, indent=1).encode()
    shown = visible_json(data)
    assert json.loads(shown) == value
    assert not [c for c in shown.decode() if c != "\n" and visible(c) != c and c not in SHOWN[3]]


def test_json_that_is_seen_stays_byte_for_byte() -> None:
    data = json.dumps({"text": "日本語 ☃ 👨‍👩‍👧"}, ensure_ascii=False).encode()
    assert visible_json(data) == data
