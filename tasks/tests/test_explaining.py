"""The parts of a text, and what each changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import pytest

import core
from core.testing import FakeModel
from core_tasks import Task, explain
from core_tasks.explaining import Unit, parts_of

TASK = Task("{text} is", ("a", "b"))


def by_letters(prompt: str, labels: object) -> Mapping[str, float]:
    """A label as likely as it is often in the prompt."""
    counts = {label: 1.0 + prompt.count(label) for label in ("a", "b")}
    return {label: count / sum(counts.values()) for label, count in counts.items()}


@pytest.fixture
def model() -> FakeModel:
    return FakeModel(labels=by_letters)


@pytest.mark.parametrize(
    ("by", "text", "parts"),
    [
        ("sentences", 'One. "Two!" Three 3.5', ["One.", '"Two!"', "Three 3.5"]),
        ("sentences", "一\u3002二\uff01三", ["一\u3002", "二\uff01", "三"]),
        ("sentences", "Title\n\n  One two\nthree...  ", ["Title", "One two\nthree..."]),
        ("lines", "one\r\n\ntwo. three\n", ["one", "two. three"]),
        ("words", " one\ttwo\nthree ", ["one", "two", "three"]),
        ("words", "  ", []),
    ],
)
def test_the_parts_of_a_text(by: Unit, text: str, parts: list[str]) -> None:
    assert [text[start:end] for start, end in parts_of(text, by)] == parts


def test_the_effect_of_each_part_is_that_of_leaving_it_out(model: FakeModel) -> None:
    text = "aa a. b b. xyz!"
    found = explain(partial(TASK.classify, model), text)
    (call,) = model.calls
    assert call.prompts == (f"{text} is", "b b. xyz! is", "aa a. xyz! is", "aa a. b b. is")
    assert found.label == "a"
    assert found.probability == pytest.approx(4 / 7)
    first, second, third = found.parts
    assert (first.text, first.start, first.end, first.label) == ("aa a.", 0, 5, "b")
    assert first.probability == pytest.approx(1 / 4)
    assert first.change == pytest.approx(4 / 7 - 1 / 4)
    assert first.effect == pytest.approx(math.log(4 / 3) - math.log(1 / 3))
    assert second.change is not None
    assert second.change < 0
    assert third.effect == pytest.approx(0)
    other = explain(partial(TASK.classify, model), text, label="b", by="words")
    assert [part.text for part in other.parts] == ["aa", "a.", "b", "b.", "xyz!"]
    assert other.parts[0].effect == pytest.approx(-math.log(2))
    assert found.to_dict()["parts"][0]["error"] is None  # type: ignore[index]


def test_the_error_of_a_rest_is_that_of_its_part(model: FakeModel) -> None:
    failing = FakeModel(
        labels=by_letters,
        errors=lambda prompt: core.PromptTooLongError(9, 8) if prompt == "two is" else None,
    )
    found = explain(partial(TASK.classify, failing), "one two", by="words")
    assert isinstance(found.parts[0].error, core.PromptTooLongError)
    assert (found.parts[0].effect, found.parts[1].error) == (None, None)
    hopeless = FakeModel(labels=by_letters, errors=lambda _: core.PromptTooLongError(9, 8))
    with pytest.raises(core.PromptTooLongError):
        explain(partial(TASK.classify, hopeless), "one two", by="words")


def test_what_cannot_be_explained(model: FakeModel) -> None:
    classify = partial(TASK.classify, model)
    with pytest.raises(core.TaskError, match=r"fewer than two sentences.* by words"):
        explain(classify, "just one")
    model.calls.clear()
    with pytest.raises(core.TaskError, match=r"1001 words, and at most 1000 .* by sentences, or a"):
        explain(classify, "a " * 1001, by="words")
    assert not model.calls
    with pytest.raises(core.TaskError, match="fewer than two words"):
        explain(classify, "", by="words")
    with pytest.raises(core.LabelError, match="'c' is not a label of the task"):
        explain(classify, "one two", by="words", label="c")
    with pytest.raises(core.OptionError, match="by"):
        explain(classify, "one two", by="letters")  # type: ignore[arg-type]
