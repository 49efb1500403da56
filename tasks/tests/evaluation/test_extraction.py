"""Numbers in written answers, and texts as they are compared."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_tasks.evaluation.extraction import matched, number_in, shown, words_of

TABLE = Path(__file__).parent / "data" / "written_answers.jsonl"
WRITTEN = [json.loads(line) for line in TABLE.read_text().splitlines()]


def test_the_table_is_as_long_as_it_should_be() -> None:
    assert len({row["written"] for row in WRITTEN}) == len(WRITTEN) >= 200


@pytest.mark.parametrize("row", WRITTEN, ids=lambda row: row["written"][:30])
def test_a_written_answer(row: dict[str, str | None]) -> None:
    assert row["written"] is not None
    number = number_in(row["written"])
    assert (None if number is None else shown(number)) == row["number"]


@given(st.integers(-(10**15), 10**15), st.integers(0, 6))
def test_any_decimal_is_read_as_it_is_written(digits: int, places: int) -> None:
    value = Fraction(digits, 10**places)
    assert number_in(f"So it is {shown(value)}.") == value
    grouped = f"{digits:,}"
    assert number_in(f"#### {grouped}") == digits
    assert Fraction(shown(value)) == value


@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    number = number_in(text)
    assert number is None or Fraction(shown(number)) == number


@pytest.mark.parametrize("digits", ["1" * 5000, "0" * 100_000, "1," * 3000, "1" * 390 + "e999"])
def test_a_model_that_repeats_digits_breaks_nothing(digits: str) -> None:
    number = number_in(f"#### {digits}")
    assert number is None or len(shown(number)) < 2000


def test_words_are_compared_without_their_blanks() -> None:
    assert words_of(" New\n York ") == "New York"
    assert words_of("e\u0301") == "\u00e9"
    assert words_of("Straße!", case=False, punctuation=False) == "strasse"


def test_a_pattern_takes_what_it_finds_last() -> None:
    pattern = re.compile(r"is (\w+)|= (\w+)")
    assert matched(pattern, "it is red, no, = blue") == "blue"
    assert matched(re.compile("[a-z]+"), "12 ab cd") == "cd"
    assert matched(pattern, "none") is None
