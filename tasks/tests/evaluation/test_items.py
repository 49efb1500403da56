"""Items from records of public data sets' shapes, and what cannot be marked."""

from __future__ import annotations

import pytest

from core import EvaluationError
from core_tasks import Item
from core_tasks.evaluation.items import Names

TREE = ("oak", "salmon", "granite")


@pytest.mark.parametrize(
    "record",
    [
        {"question": "A tree?", "choices": [*TREE], "answer": "oak"},
        {"question": "A tree?", "choices": [*TREE], "answer": 0},
        {"question": "A tree?", "choices": [*TREE], "answer": "0"},
        {"question": "A tree?", "choices": [*TREE], "answer": "A"},
        {"question": "A tree?", "choices": [*TREE], "answer": "a."},
        {"question": "A tree?", "choices": '["oak", "salmon", "granite"]', "answer": "oak"},
        {"question": "A tree?", "choices": "oak|salmon|granite", "answer": "oak"},
        {"ctx": "A tree?", "endings": [*TREE], "label": "0"},  # HellaSwag
        {  # ARC
            "question": "A tree?",
            "choices": {"text": [*TREE], "label": ["1", "2", "3"]},
            "answerKey": "1",
        },
    ],
)
def test_records_of_public_sets(record: dict[str, object]) -> None:
    item = Names().item(record)
    assert (item.question, item.choices, item.answers, item.gold) == ("A tree?", TREE, ("oak",), 0)


def test_a_text_goes_before_a_number() -> None:
    item = Names().item({"question": "2 + 1", "choices": ["1", "2", "3"], "answer": "2"})
    assert item.gold == 1


def test_fields_may_be_named() -> None:
    record = {"q": "A tree?", "r": "oak", "question": "no", "answer": "no"}
    assert Names("q", "r").item(record) == Item("A tree?", ("oak",), fields=record)


def test_several_answers_may_be_right() -> None:
    assert Names().item({"question": "?", "answer": ["a", "b", 3]}).answers == ("a", "b", "3")
    assert Names().item({"question": "?", "answer": 3.5}).answers == ("3.5",)


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"question": "?"}, "no answer in any of answer, label"),
        ({"question": "?", "answer": ""}, "no answer"),
        ({"question": "?", "answer": " "}, "no answer, or an empty one"),
        ({"question": "?", "answer": []}, "no answer"),
        ({"answer": "a"}, "no question"),
        ({"question": 3, "answer": "a"}, "question is not a text: 3"),
        ({"question": "?", "choices": ["a", "b"], "answer": "c d"}, "'c d' is not one of the 2"),
        ({"question": "?", "choices": ["a", "b"], "answer": 2}, "2 is not one of the 2 choices"),
        ({"question": "?", "choices": ["a", "b"], "answer": -1}, "-1 is not one"),
        ({"question": "?", "choices": ["a", "b"], "answer": "E"}, "'E' is not one"),
        ({"question": "?", "choices": ["a", "b", " a"], "answer": "b"}, "1 and 3 are equal"),
        ({"question": "?", "choices": ["a", ""], "answer": "a"}, "Choice 2 of the item is empty"),
        ({"question": "?", "choices": ["a"], "answer": "a"}, "only one choice"),
        ({"question": "?", "choices": [1, 2], "answer": 1}, "not a list of texts"),
        ({"question": "?", "choices": {"label": ["a"]}, "answer": 1}, "not a list of texts"),
    ],
)
def test_what_cannot_be_marked_is_told(record: dict[str, object], told: str) -> None:
    with pytest.raises(EvaluationError, match=told):
        Names().item(record)


def test_a_named_field_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(
        EvaluationError, match=r"has no field 'q'\. Its fields are 'question', 'answer'"
    ):
        Names("q").item({"question": "?", "answer": "a"})
