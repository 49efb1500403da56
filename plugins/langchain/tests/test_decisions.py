"""The decision model: what core's wire answers, typed, and many requests in few calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.decisions import Box, Choice, ClassifierResponse, Noul, Score
from langchain_core.messages import AIMessage, HumanMessage

import core
from core.api import close_shared_models
from core.testing import FakeModel
from core_langchain import CoreDecisions

TEAM = Choice(instructions="Which team?", criteria={"billing": None, "sales": None})
ANGRY = Score(instructions="How angry?", criteria=["calm", {"is": "cross"}, "furious"])
BUG = Noul(instructions="Is it a bug?")
WAIT = 60.0


def likely(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    """A label is as likely as it is often in the prompt."""
    counts = [prompt.count(label.strip()) + 0.2 for label in labels]
    return {label: count / sum(counts) / 2 for label, count in zip(labels, counts, strict=True)}


@pytest.fixture
def model() -> FakeModel:
    errors = {"poisoned": core.RequestError("It cannot be read.")}
    return FakeModel(
        labels=likely,
        errors=lambda prompt: next((e for word, e in errors.items() if word in prompt), None),
    )


@pytest.fixture
def decisions(model: FakeModel) -> CoreDecisions:
    return CoreDecisions(model="fake", loaded=model)


def test_every_kind_of_question(decisions: CoreDecisions) -> None:
    questions: Any = {"team": TEAM, "angry": ANGRY, "bug": BUG}
    response = decisions.invoke({"state": "billing billing furious", "questions": questions})
    assert isinstance(response, ClassifierResponse)
    assert response.choices["team"].choice == "billing"
    assert sum(response.choices["team"].probabilities.values()) == pytest.approx(1)
    assert 0 < response.choices["team"].confidence <= 1
    assert 1 < response.scores["angry"].score <= 2
    assert response.scores["angry"].legend == {0: "calm", 1: {"is": "cross"}, 2: "furious"}
    assert response.nouls["bug"].noul == pytest.approx(0.5)
    assert response.usage is not None
    assert response.usage["input_tokens"] > 0


def test_a_state_may_be_text_json_or_messages(decisions: CoreDecisions, model: FakeModel) -> None:
    states: list[Any] = [
        "sales",
        {"subject": "sales", "lines": ["a", 1, None, True]},
        [HumanMessage("I want sales."), AIMessage("Indeed.")],
        {"thread": [HumanMessage("sales")], "open": True},
    ]
    for state in states:
        response = decisions.invoke({"state": state, "questions": {"team": TEAM}})
        assert response.choices["team"].choice == "sales"
    assert "I want sales." in model.calls[2].prompts[0]


@pytest.mark.parametrize(
    "request_",
    [
        {"state": "a", "questions": {}},
        {"state": "a", "questions": {"where": Box(instructions="The cat.")}},
        {"state": "a", "questions": {"one": Choice(instructions="?", criteria={"a": None})}},
        {"state": [{"type": "image", "url": "http://x/y.png"}], "questions": {"bug": BUG}},
        {
            "state": [HumanMessage([{"type": "image", "url": "http://x/y.png"}])],
            "questions": {"bug": BUG},
        },
    ],
)
def test_what_cannot_be_asked_is_told_before_any_work(
    request_: Any, decisions: CoreDecisions, model: FakeModel
) -> None:
    with pytest.raises(core.RequestError):
        decisions.invoke(request_)
    assert model.calls == []


def test_many_requests_share_the_calls_of_their_labels(
    decisions: CoreDecisions, model: FakeModel
) -> None:
    requests: Any = [
        {"state": text, "questions": {"team": TEAM, "bug": BUG}}
        for text in ("billing", "poisoned sales", "sales", "billing")
    ]
    requests.append({"state": "a", "questions": {}})
    found = decisions.batch(requests, return_exceptions=True)
    assert len(model.calls) == 2
    assert [type(each).__name__ for each in found] == [
        "ClassifierResponse",
        "RequestError",
        "ClassifierResponse",
        "ClassifierResponse",
        "WireError",
    ]
    alone = [decisions.invoke(requests[place]) for place in (0, 2, 3)]
    assert [found[0], found[2], found[3]] == alone  # a neighbour never changes an answer
    assert asyncio.run(decisions.abatch(requests[:1])) == [found[0]]
    with pytest.raises(core.RequestError):
        decisions.batch(requests)


def test_callbacks_hear_of_each_request(decisions: CoreDecisions) -> None:
    class Heard(BaseCallbackHandler):
        ended = failed = 0

        def on_chain_end(self, *_: Any, **__: Any) -> None:
            self.ended += 1

        def on_chain_error(self, *_: Any, **__: Any) -> None:
            self.failed += 1

    heard = Heard()
    requests: Any = [{"state": s, "questions": {"bug": BUG}} for s in ("a", "poisoned", "b")]
    decisions.batch(requests, {"callbacks": [heard]}, return_exceptions=True)
    assert (heard.ended, heard.failed) == (2, 1)


def test_the_chat_template_is_asked_through(model: FakeModel) -> None:
    decisions = CoreDecisions(model="fake", loaded=model, chat=True)
    decisions.invoke({"state": "sales", "questions": {"team": TEAM}})
    assert isinstance(model.calls[0].prompts[0], str)
    assert model.calls[0].prompts[0] != ""
    plain = CoreDecisions(model="fake", loaded=model)
    plain.invoke({"state": "sales", "questions": {"team": TEAM}})
    assert model.calls[0].prompts != model.calls[1].prompts


def test_a_late_request_has_its_error(model: FakeModel) -> None:
    late = CoreDecisions(model="fake", loaded=model, timeout=1e-9)
    with pytest.raises(core.GenerationTimeout):
        late.invoke({"state": "a", "questions": {"bug": BUG}})


@pytest.mark.parametrize("way", ["ainvoke", "abatch"])
def test_a_task_that_is_cancelled_ends_the_work(way: str) -> None:
    began, ended = threading.Event(), threading.Event()

    class Waiting(FakeModel):
        def classify(self, prompts: Any, config: Any = None, /, **_: Any) -> Any:
            began.set()
            while not config.cancel.is_set():
                ended.wait(0.01)
            ended.set()
            return [core.ClassifyResult(error=core.GenerationCancelled()) for _ in prompts]

    decisions = CoreDecisions(model="fake", loaded=Waiting(labels=likely))
    request: Any = {"state": "a", "questions": {"bug": BUG}}

    async def run() -> None:
        call = decisions.ainvoke(request) if way == "ainvoke" else decisions.abatch([request])
        task = asyncio.create_task(call)
        assert await asyncio.to_thread(began.wait, WAIT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(ended.wait, WAIT)

    asyncio.run(run())


def test_a_real_model_by_its_path(smollm2_dir: Path) -> None:
    topic = Choice(
        instructions="Which field is this news about?",
        criteria={"finance": None, "sports": None, "science": None},
    )
    decisions = CoreDecisions(model=str(smollm2_dir))
    states = ["The central bank raised interest rates.", "The striker scored twice."]
    requests: Any = [{"state": state, "questions": {"topic": topic}} for state in states]
    try:
        found = decisions.batch(requests)
    finally:
        close_shared_models()
    assert [each.choices["topic"].choice for each in found] == ["finance", "sports"]
