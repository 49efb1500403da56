"""Values from a file: of the right type and range, or refused with their place."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from core.system.fields import MOST, Fields
from core.system.limited_files import Refused

VALUES = {
    "text": "é",
    "texts": ["a", "b"],
    "flag": False,
    "count": MOST,
    "number": -0.5,
    "numbers": [1, 2.5],
    "table": {"a": {"b": 1}},
    "tables": [{"a": 1}],
    "null": None,
    "nan": math.nan,
    "infinite": math.inf,
    "huge": 10**400,
    "surrogate": "\ud800",
    "mixed": [{"a": "x"}, 3],
}
FIELDS = Fields(VALUES)


def test_values_are_read_by_name() -> None:
    assert FIELDS.text("text") == "é"
    assert FIELDS.texts("texts") == ("a", "b")
    assert FIELDS.flag("flag") is False
    assert FIELDS.integer("count") == MOST
    assert FIELDS.number("number") == -0.5
    assert FIELDS.numbers("numbers") == (1.0, 2.5)
    assert FIELDS.table("table").table("a").integer("b") == 1
    assert [each.integer("a") for each in FIELDS.tables("tables")] == [1]
    assert [*FIELDS.items("texts")] == [("a", "texts[0]"), ("b", "texts[1]")]
    assert FIELDS.given("flag")
    assert not FIELDS.given("null")
    assert not FIELDS.given("none")
    assert FIELDS.only(VALUES) is FIELDS


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (lambda: FIELDS.text("none"), "none is missing"),
        (lambda: FIELDS.text("count"), "count is 9007199254740992, not a text"),
        (lambda: FIELDS.text("surrogate"), r"surrogate is '\\ud800', which is not Unicode text"),
        (lambda: FIELDS.texts("text"), "text is 'é', not a list"),
        (lambda: FIELDS.texts("numbers"), r"numbers\[0\] is 1, not a text"),
        (lambda: FIELDS.flag("count"), "count is .*, not true or false"),
        (lambda: FIELDS.integer("flag"), "flag is False, not a whole number from 0 to"),
        (lambda: FIELDS.integer("number"), "number is -0.5, not a whole number"),
        (lambda: FIELDS.integer("count", 0, 5), "count is .*, not a whole number from 0 to 5"),
        (lambda: FIELDS.integer("huge"), "huge is 1000000"),
        (lambda: FIELDS.number("nan"), "nan is nan, not a finite number"),
        (lambda: FIELDS.number("infinite"), "infinite is inf, not a finite number"),
        (lambda: FIELDS.number("huge"), "huge is 10000.*, not a finite number"),
        (lambda: FIELDS.number("flag"), "flag is False, not a finite number"),
        (lambda: FIELDS.number("number", 0.0), "number is -0.5, not a number from 0"),
        (lambda: FIELDS.number("number", 0.0, 1.0), "number is -0.5, not a number from 0 to 1"),
        (lambda: FIELDS.table("texts"), r"texts is \['a', 'b'\], not a table"),
        (lambda: FIELDS.table("table").text("b"), r"table\.b is missing"),
        (lambda: [each.text("a") for each in FIELDS.tables("tables")], r"tables\[0\]\.a is 1"),
        (lambda: [*FIELDS.tables("mixed")], r"mixed\[1\] is 3, not a table"),
        (lambda: FIELDS.only({"text"}), "it has the unknown key 'texts'; the keys are text"),
        (lambda: FIELDS.table("table").only("b"), "table has the unknown key 'a'; the keys are b"),
        (lambda: Fields([]), r"it is \[\], not a table"),
    ],
)
def test_what_is_missing_or_odd_is_refused_with_its_place(
    read: Callable[[], object], reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        read()
