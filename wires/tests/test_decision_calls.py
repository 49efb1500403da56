"""`core_wires.decision_calls`: many requests in few calls, each with the answers it has alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import core
from core.testing import FakeModel
from core_wires import systemone
from core_wires.decision_calls import decide
from core_wires.questions import DecisionRequest

TEAM = {"type": "choice", "criteria": {"billing": None, "sales": None}}
BUG = {"type": "noul", "instructions": "Is it a bug?"}


def likely(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    """A label is as likely as it is often in the prompt."""
    counts = [prompt.count(label.strip()) + 0.2 for label in labels]
    return {label: count / sum(counts) / 2 for label, count in zip(labels, counts, strict=True)}


def request(state: str, **questions: object) -> DecisionRequest:
    return systemone.read({"model": "m", "state": state, "questions": questions})


@pytest.fixture
def model() -> FakeModel:
    def error(prompt: str) -> Exception | None:
        return core.RequestError("It cannot be read.") if "poisoned" in prompt else None

    return FakeModel(labels=likely, errors=error)


def test_equal_labels_share_a_call_and_no_request_hears_of_another(model: FakeModel) -> None:
    requests = [
        request("billing", team=TEAM, bug=BUG),
        request("poisoned sales", team=TEAM),
        request("sales", bug=BUG, team=TEAM),
    ]
    outcomes = decide(model, requests)
    assert len(model.calls) == 2
    assert isinstance(outcomes[1], core.RequestError)
    for place in (0, 2):
        assert outcomes[place] == decide(model, [requests[place]])[0]
    first: Any = outcomes[0]
    answers, usage = first
    assert answers[0].choice == "billing"
    read = sum(len(model.encode(text)) for call in model.calls[:2] for text in call.prompts[:1])
    assert (usage.input_tokens, usage.output_tokens) == (read, 2)


def test_nothing_is_asked_for_nothing(model: FakeModel) -> None:
    assert decide(model, []) == []
    assert model.calls == []


def test_late_requests_have_their_error(model: FakeModel) -> None:
    [late] = decide(model, [request("a", bug=BUG)], core.GenerateConfig(timeout=1e-9))
    assert isinstance(late, core.GenerationTimeout)


def test_a_template_that_refuses_one_request_is_its_error(
    model: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    render = model.render_chat

    def refusing(turns: Any, *config: Any, **options: Any) -> Any:
        if "odd" in turns[0].content:
            raise core.ChatTemplateError("Not this one.")
        return render(turns, *config, **options)

    monkeypatch.setattr(model, "render_chat", refusing)
    outcomes = decide(model, [request("odd", bug=BUG), request("even", bug=BUG)], chat=True)
    assert isinstance(outcomes[0], core.ChatTemplateError)
    assert not isinstance(outcomes[1], Exception)
