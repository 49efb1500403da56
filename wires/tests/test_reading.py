"""How questions are put, and how the answers come out of the labels' probabilities."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import PromptTooLongError
from core.kit.labels import choice_confidence, score_confidence
from core.testing import FakeModel
from core.types import ClassifyResult
from core_wires.questions import (
    Choice,
    ChoiceAnswer,
    DecisionRequest,
    Level,
    Option,
    Predicate,
    PredicateAnswer,
    Score,
    ScoreAnswer,
    expected_score,
)
from core_wires.reading import reading, readings

STATE = "I was charged twice.\n"


def choice(*values: str | bool, **descriptions: str) -> Choice:
    return Choice("Which team?", tuple(Option(v, descriptions.get(str(v), "")) for v in values))


def test_a_choice_is_asked_before_the_state_and_led_to_behind_it() -> None:
    read = reading(choice("sales", "billing"), STATE)
    assert read.as_text() == "Which team?\n\nI was charged twice. Topic:"
    [message] = read.as_messages()
    assert message.content == "Which team?\n\nI was charged twice."
    assert read.opening == "Topic:"
    assert read.labels == ("sales", "billing")


def test_letters_stand_for_options_in_an_order_of_their_own() -> None:
    for values in (("sales", "billing", True), (True, "billing", "sales")):
        read = reading(choice(*values, billing="payments"), STATE, "letters")
        assert read.as_text() == (
            "Which team?\n\nA: billing: payments\nB: sales\nC: true\n\nI was charged twice. Answer:"
        )
        letters = {"billing": "A", "sales": "B", True: "C"}
        assert read.labels == tuple(letters[value] for value in values)
    shares = {"A": 0.1, "B": 0.7, "C": 0.2}
    model = FakeModel(labels=lambda prompt, labels: {label: shares[label] for label in labels})
    answer = read.answer(model.classify([read.as_text()], labels=read.labels)[0])
    assert isinstance(answer, ChoiceAnswer)
    assert (answer.choice, answer.evidence.reading) == ("sales", "letters")


def test_letters_of_levels_are_in_the_order_of_the_levels() -> None:
    read = reading(Score("How?", (Level("Calm"), Level("Angry"))), STATE, "letters")
    assert read.question_text == "How?\n\nA: Calm\nB: Angry"
    assert read.labels == ("A", "B")


def test_a_predicate_has_no_letters() -> None:
    read = reading(Predicate("So?"), STATE, "letters")
    assert (read.labels, read.how) == (("yes", "no"), "labels")


def test_descriptions_are_lines_of_their_own() -> None:
    read = reading(choice("sales", "billing", billing="payments\nand invoices"), STATE)
    assert read.question_text == "Which team?\n\nbilling: payments and invoices\nsales"


def test_a_predicate_is_answered_with_yes_or_no() -> None:
    read = reading(Predicate("Is it about money?", false="anything else"), STATE)
    assert read.as_text() == (
        "Is it about money?\n\nno: anything else\n\nI was charged twice. The answer is"
    )
    assert read.labels == ("yes", "no")


def test_long_levels_are_read_by_their_numbers() -> None:
    long = Score("How?", (Level("Calm"), Level("Angry " * 20, "very")))
    read = reading(long, STATE)
    assert read.labels == ("0", "1")
    assert read.question_text.startswith("How?\n\n0: Calm\n1: Angry Angry")
    assert reading(Score("How?", (Level("Calm"), Level("Angry"))), STATE).labels == (
        *("Calm", "Angry"),
    )


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (("true", True), ('"true"', "true")),
        (("a", " a"), ('"a"', '" a"')),
        (("", "b"), ('""', '"b"')),
        ((True, False), ("true", "false")),
        (("sales", "sales support"), ("sales\n", "sales support\n")),
        (("v1", "v2"), ("v1", "v2")),
        (("two\nlines", "one"), ("two lines", "one")),
    ],
)
def test_no_two_labels_are_alike_and_none_begins_another(
    values: tuple[str | bool, ...], labels: tuple[str, ...]
) -> None:
    assert reading(choice(*values), STATE).labels == labels


def test_equal_levels_are_told_apart() -> None:
    read = reading(Score("?", (Level("same"), Level("same"))), STATE)
    assert len({*read.labels}) == 2


@given(st.lists(st.text(min_size=1) | st.booleans(), min_size=2, max_size=8), st.randoms())
def test_the_order_of_the_options_changes_nothing(
    values: list[str | bool], shuffler: random.Random
) -> None:
    unique = list({(type(value), value): value for value in values}.values())
    if len(unique) < 2:
        return
    shuffled = list(unique)
    shuffler.shuffle(shuffled)
    for how in ("labels", "letters"):
        one, other = (reading(choice(*options), STATE, how) for options in (unique, shuffled))
        assert one.as_text() == other.as_text()
        called = dict(zip(map(repr, unique), one.labels, strict=True))
        assert called == dict(zip(map(repr, shuffled), other.labels, strict=True))


def test_a_whole_request_on_a_model() -> None:
    """The caller's loop: readings with the same labels may share a call."""
    request = DecisionRequest(
        "systemone",
        "m",
        "I was charged twice.",
        (
            Predicate("Money?"),
            choice("sales", True, "billing"),
            Score("Anger?", (Level("Calm"), Level("Angry"), Level("Furious"))),
        ),
    )
    shares = {
        "yes": 0.6,
        "no": 0.2,
        **{"sales": 0.1, "true": 0.1, "billing": 0.2},
        **{"Calm": 0.0, "Angry": 0.1, "Furious": 0.3},
    }
    model = FakeModel(labels=lambda prompt, labels: {label: shares[label] for label in labels})
    predicate, picked, score = (
        read.answer(model.classify([read.as_text()], labels=read.labels)[0])
        for read in readings(request)
    )
    assert isinstance(predicate, PredicateAnswer)
    assert predicate.probability == pytest.approx(0.75)
    assert predicate.evidence.label_mass == pytest.approx(0.8)
    assert isinstance(picked, ChoiceAnswer)
    assert picked.choice == "billing"
    assert picked.probabilities == pytest.approx((0.25, 0.25, 0.5))
    assert picked.confidence == pytest.approx((0.5 - 1 / 3) / (2 / 3))
    assert isinstance(score, ScoreAnswer)
    assert score.score == pytest.approx(1.75)
    assert score.confidence == pytest.approx(1 - 0.25 / (2 / 3))


def test_the_rows_error_is_raised_and_foreign_labels_are() -> None:
    read = reading(choice("a", "b"), STATE)
    with pytest.raises(PromptTooLongError):
        read.answer(ClassifyResult(error=PromptTooLongError(9, 5)))
    with pytest.raises(ValueError, match="this reading's labels"):
        read.answer(ClassifyResult(probabilities={"a": 1.0, "c": 0.0}))


def test_confidence_is_the_pinned_formula() -> None:
    # By hand. Four levels: the mean distance from 1.5 is (1.5 + 0.5 + 0.5 + 1.5) / 4 = 1.
    assert score_confidence([0.1, 0.6, 0.2, 0.1]) == pytest.approx(1 - (0.1 + 0.2 + 0.2))
    assert score_confidence([0.5, 0.0, 0.0, 0.5]) == 0.0
    assert choice_confidence([0.7, 0.2, 0.1]) == pytest.approx((0.7 - 1 / 3) / (2 / 3))
    assert expected_score([0.2, 0.3, 0.5]) == pytest.approx(1.3)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12).filter(lambda shares: sum(shares) > 0))
def test_confidence_is_within_zero_and_one(weights: list[float]) -> None:
    shares = [weight / sum(weights) for weight in weights]
    for formula in (choice_confidence, score_confidence):
        assert 0.0 <= formula(shares) <= 1.0
    certain = [0.0] * len(shares)
    certain[0] = 1.0
    assert choice_confidence(certain) == score_confidence(certain) == 1.0
    assert 0.0 <= expected_score(shares) <= len(shares) - 1
