"""Decisions of a model of label sentences: the state alone is compared with each option."""

from __future__ import annotations

import pytest

from core.errors import RequestError
from core.testing import FakeEncoder
from core_wires import systemone
from core_wires.decision_calls import decide, prepare
from core_wires.questions import ChoiceAnswer, DecisionRequest, ScoreAnswer


def request(**question: object) -> DecisionRequest:
    body = {"model": "m", "state": " a red car ", "questions": {"q": question}}
    return systemone.read(body)


CHOICE = {"type": "choice", "instructions": "Which?", "criteria": {"red": "", "red car": "fast"}}


def test_the_labels_are_the_options_with_their_descriptions() -> None:
    prepared = prepare(request(**CHOICE), sentences=True)
    assert prepared.prompts == ("a red car",)
    [reading] = prepared.readings
    assert reading.labels == ("red", "red car: fast")  # a prefix needs no end: both are sentences
    assert reading.how == "labels"


def test_answers_have_no_label_mass_and_no_logprobs() -> None:
    levels = [{"label": "blue"}, {"label": "red car"}]
    requests = [request(**CHOICE), request(type="score", instructions="", criteria=levels)]
    [(choices, usage), (scores, _)] = decide(FakeEncoder(), requests)  # type: ignore[misc]
    [choice], [score] = choices, scores
    assert isinstance(choice, ChoiceAnswer)
    assert isinstance(score, ScoreAnswer)
    assert sum(choice.probabilities) == pytest.approx(1)
    assert score.score > 0.5
    assert (choice.evidence.label_mass, choice.evidence.logprobs) == (None, None)
    assert usage.input_tokens == len("a red car")


def test_a_question_of_yes_or_no_is_the_error_of_its_request() -> None:
    asked = [request(type="noul", instructions="Is it red?"), request(**CHOICE)]
    refused, answered = decide(FakeEncoder(), asked)
    assert isinstance(refused, RequestError)
    assert "with yes or no" in str(refused)
    assert not isinstance(answered, Exception)
