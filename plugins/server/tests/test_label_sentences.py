"""An encoder behind the server: label sentences, decisions, and the contract's own API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from starlette.testclient import TestClient

import core
import core_tasks
from core.testing import FakeEncoder, FakeModel
from core_server import Served, Settings, create_app

NDJSON = {"Content-Type": "application/x-ndjson"}
LABELS = ["lion", "tiger"]
TEXTS = ["a tiger", "the lion"]


def served(model: FakeEncoder) -> Served:
    return Served("encoder", model, capabilities=model.capabilities, backend="encoder")


@pytest.fixture
def model() -> FakeEncoder:
    return FakeEncoder()


@pytest.fixture(params=[False, True], ids=["plain", "chat"])
def client(model: FakeEncoder, request: pytest.FixtureRequest) -> Iterator[TestClient]:
    with TestClient(create_app([served(model)], Settings(chat=request.param))) as c:
        yield c


def test_decisions_are_those_of_the_task_in_process(client: TestClient, model: FakeEncoder) -> None:
    plain = core_tasks.Task("{text}", tuple(LABELS))
    own = replace(plain, label_sentence="See the {label}")
    for task, given in ((plain, {}), (own, {"label_sentence": own.label_sentence})):
        wanted = task.classify(FakeEncoder(), TEXTS)
        body = {"labels": LABELS, **given}
        reply = client.post("/v1/classify", json={**body, "texts": TEXTS, "show_prompts": True})
        lines = "".join(json.dumps(line) + "\n" for line in (body, *TEXTS))
        streamed = client.post("/v1/classify", content=lines, headers=NDJSON)
        answers = reply.json()["data"]
        assert [answer.pop("prompts") for answer in answers] == [[text] for text in TEXTS]
        assert answers == [json.loads(line) for line in streamed.text.splitlines()]
        assert [answer["label"] for answer in answers] == ["tiger", "lion"]
        assert [answer["probabilities"] for answer in answers] == [d.probabilities for d in wanted]
        assert {answer["label_mass"] for answer in answers} == {None}
    assert {call.config.label_sentence for call in model.calls} == {
        "This text is about {label}.",
        "See the {label}",
    }


def test_a_template_of_the_request_is_kept_and_a_prior_subtracted(client: TestClient) -> None:
    body = {"texts": TEXTS, "labels": LABELS, "template": "query: {text}", "show_prompts": True}
    answers = client.post("/v1/classify", json={**body, "level": "content-free"}).json()["data"]
    assert answers[0]["prompts"] == ["query: a tiger"]
    assert {answer["level"] for answer in answers} == {"content-free"}


def test_requests_of_one_sentence_share_a_call_and_others_do_not() -> None:
    from core_server.queues.batch_calls import LabelCall

    assert LabelCall(("a",)) == LabelCall(("a",), "This text is about {label}.")
    assert LabelCall(("a",)) != LabelCall(("a",), "{label}")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"label_sentence": "no place"}, "a sentence with {label}"),
        ({"label_sentence": 3}, "label_sentence: This must be a string"),
        ({"mode": "many", "template": "{text} {label}?"}, "Use mode='one'"),
        ({"label_sentence": "{label}" * 200_001, "labels": ["abcd", "b"]}, "label sentences"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    client: TestClient, body: dict[str, object], message: str
) -> None:
    reply = client.post("/v1/classify", json={"texts": TEXTS, "labels": LABELS, **body})
    assert reply.status_code == 400
    assert message in reply.json()["error"]["message"]


def test_a_language_model_refuses_a_label_sentence() -> None:
    language = Served("fake", FakeModel(labels=lambda prompt, labels: labels[0]))
    with TestClient(create_app([language])) as client:
        body = {"texts": TEXTS, "labels": LABELS, "label_sentence": "{label}"}
        reply = client.post("/v1/classify", json=body)
    assert reply.status_code == 400
    assert "label_sentence" in reply.json()["error"]["message"]


# --------------------------------------------------------------------------- decisions


def test_choices_and_levels_are_compared_with_the_state_alone(
    client: TestClient, model: FakeEncoder
) -> None:
    questions = {
        "animal": {
            "type": "choice",
            "instructions": "Which animal is it?",
            "criteria": {"tiger": "a cat with stripes", "lion": ""},
        },
        "size": {"type": "score", "criteria": [{"label": "small"}, {"label": "large tiger"}]},
    }
    body = {"model": "encoder", "state": "a cat with stripes", "questions": questions}
    reply = client.post("/v1/systemone", json=body)
    assert reply.status_code == 200, reply.text
    answer = reply.json()["answers"]["animal"]
    assert answer["choice"] == "tiger"
    assert "x_label_mass" not in answer
    assert "x_logprobs" not in answer
    assert {call.prompts for call in model.calls} == {("a cat with stripes",)}
    assert model.calls[0].config.labels == ("tiger: a cat with stripes", "lion")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"questions": {"q": {"type": "noul", "instructions": "?"}}}, "with yes or no"),
        ({"x_reading": "letters"}, "cannot read letters"),
    ],
)
def test_questions_that_need_a_next_token_are_refused(
    client: TestClient, change: dict[str, object], message: str
) -> None:
    choice = {"type": "choice", "instructions": "", "criteria": {"lion": "", "tiger": ""}}
    body = {"model": "encoder", "state": "a cat", "questions": {"q": choice}, **change}
    reply = client.post("/v1/systemone", json=body)
    assert reply.status_code == 422, reply.text
    assert message in reply.text


# --------------------------------------------------------------------------- core's own API


def test_the_description_names_the_capability_and_the_options_that_are_refused(
    client: TestClient,
) -> None:
    description = client.post("/v1/core/describe", json={}).json()["value"]
    assert {"labels", "label_sentences", "hidden_states"} <= {*description["capabilities"]}
    assert "classify" not in description["capabilities"]
    assert "repeat_penalty" in description["refused"]


def test_a_call_with_labels_runs_and_one_without_is_refused(client: TestClient) -> None:
    options = {"labels": LABELS, "label_sentence": "{label}"}
    call = {"arguments": {"prompts": TEXTS}, "options": options}
    rows = client.post("/v1/core/classify", json=call).text.splitlines()
    wanted = FakeEncoder().classify(TEXTS, core.GenerateConfig(**options))  # type: ignore[arg-type]
    assert [json.loads(row)["result"]["label"] for row in rows[:2]] == [r.label for r in wanted]
    refused = client.post("/v1/core/classify", json={"arguments": {"prompts": TEXTS}}).text
    assert "UnsupportedOperationError" in refused
