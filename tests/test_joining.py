"""Where a space is written before a label."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import LabelError
from core.kit.labels import build_trie, label_texts, unspaced

ROOT = Path(__file__).parents[1]

ENDS = tomllib.loads((ROOT / "tests" / "data" / "joining.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("end", "reason"), [(end, reason) for reason, ends in ENDS["unspaced"].items() for end in ends]
)
def test_no_space_follows(end: str, reason: str) -> None:
    assert unspaced(end) == reason
    assert unspaced(f"{'A long text. ' * 20}\n{end}") == reason
    assert label_texts(end, ["news"], " ") == ["news"]


@pytest.mark.parametrize("end", ENDS["spaced"])
def test_a_space_follows(end: str) -> None:
    assert unspaced(end) == ""
    assert unspaced(f"{'A long text. ' * 20}\n{end}") == ""
    assert label_texts(end, ["news"], " ") == [" news"]


@pytest.mark.parametrize("end", [" ", "\n", "\u3000", "是 ", '"\t'])
def test_white_space_is_no_end_of_its_own(end: str) -> None:
    assert unspaced(end) == ""
    assert label_texts(end, ["news", " news"], " ") == ["news", " news"]


def test_a_prefix_of_white_space_is_written_between_words_alone() -> None:
    for prefix in (" ", "\n", "\u00a0", "  "):
        assert label_texts("It is", ["a", " b", "\nc"], prefix) == [f"{prefix}a", " b", "\nc"]
        assert label_texts("It is (", ["a", " b", "\nc"], prefix) == ["a", " b", "\nc"]


def test_any_other_prefix_is_written_as_it_is() -> None:
    for prefix in (" (", ": ", "\u200b", "- "):
        assert label_texts('It is "', ["a", " b"], prefix) == [f"{prefix}a", f"{prefix} b"]
        assert label_texts("It is\n", ["a", " b"], prefix) == ["a", " b"]
    assert label_texts('It is "', ["a", " b"], "") == ["a", " b"]


def test_a_label_with_its_own_space_is_the_one_without() -> None:
    texts = label_texts("It is", ["sports", " sports"], " ")
    with pytest.raises(LabelError, match="'sports' and ' sports' have the same tokens"):
        build_trie(["sports", " sports"], [tuple(text.encode()) for text in texts])


@given(st.text("a<>/\"'`*_ :是。\u0301-#=(“»~1", max_size=20), st.text("\u200b\u0301\ufe0f"))
def test_marks_and_format_characters_belong_to_what_they_follow(text: str, marks: str) -> None:
    assert unspaced(text + marks) == unspaced(text)
