"""``/v1/classify``, vLLM's routes of the same kind, and ``/metrics``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from starlette.testclient import TestClient

import core_tasks
from core.testing import FakeModel
from core_server import Served, Settings, create_app

NDJSON = {"Content-Type": "application/x-ndjson"}
LABELS = ["lion", "tiger"]


def probabilities(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    """More for a label that the text names, and always more for the first."""
    text = prompt.rpartition("\n")[2]
    return {label: 0.5 if label in text else 0.2 if label == "lion" else 0.1 for label in labels}


def model() -> FakeModel:
    return FakeModel("Good day", labels=probabilities)


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(create_app([Served("fake", model())], Settings(max_body=100_000))) as c:
        yield c


def lines(head: Mapping[str, Any], *texts: object) -> str:
    return "".join(json.dumps(line) + "\n" for line in (head, *texts))


# --------------------------------------------------------------------------- one body


def test_the_decisions_are_those_of_the_task_in_process(client: TestClient) -> None:
    body = {"texts": ["a tiger", "a lion"], "labels": LABELS, "template": "{text} This is a"}
    reply = client.post("/v1/classify", json=body)
    assert reply.status_code == 200
    task = core_tasks.Task("{text} This is a", tuple(LABELS))
    for served, alone in zip(
        reply.json()["data"], task.classify(model(), body["texts"]), strict=True
    ):
        assert served["label"] == alone.label
        assert served["probabilities"] == alone.probabilities
        assert served["level"] == "raw"
    assert reply.json()["usage"]["prompt_tokens"] > 0


def test_a_level_takes_the_prior_off(client: TestClient) -> None:
    body = {"texts": ["a bear", "a tiger"], "labels": LABELS, "level": "content-free"}
    first = client.post("/v1/classify", json=body).json()["data"]
    assert [answer["level"] for answer in first] == ["content-free", "content-free"]
    task = core_tasks.Task("{text} Topic:", tuple(LABELS)).fit_prior(model())
    for answer, alone in zip(first, task.classify(model(), body["texts"]), strict=True):
        assert answer["probabilities"] == pytest.approx(alone.probabilities)
    raw = client.post("/v1/classify", json=body | {"level": "raw"}).json()["data"]
    assert first[0]["probabilities"]["lion"] < raw[0]["probabilities"]["lion"]
    assert client.post("/v1/classify", json=body).json()["data"] == first


def test_without_a_template_the_order_of_the_labels_changes_nothing(client: TestClient) -> None:
    answers = [
        client.post("/v1/classify", json={"texts": ["a tiger"], "labels": labels}).json()["data"]
        for labels in (LABELS, LABELS[::-1])
    ]
    assert answers[0][0]["probabilities"] == answers[1][0]["probabilities"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": ["one"]}, "more labels"),
        ({"labels": ["a", "a"]}, "Duplicate label"),
        ({"template": "no place"}, "{text}"),
        ({"level": "L1"}, "level: Expected raw or content-free"),
        ({"mode": "both"}, "mode"),
        ({"threshold": 2}, "threshold"),
        ({"texts": "one"}, "texts: This must be an array"),
        ({"texts": [1]}, "texts[0]"),
        ({"temperature": 1}, "temperature: Unknown field"),
        ({"labels": None}, "labels: This field is required"),
    ],
)
def test_a_bad_body_is_told_what_is_wrong(
    client: TestClient, change: Mapping[str, Any], message: str
) -> None:
    reply = client.post("/v1/classify", json={"texts": ["a"], "labels": LABELS} | dict(change))
    assert reply.status_code == 400
    assert message in reply.json()["error"]["message"]


def test_no_texts_have_no_answers(client: TestClient) -> None:
    reply = client.post("/v1/classify", json={"texts": [], "labels": LABELS})
    assert reply.json()["data"] == []


@pytest.mark.parametrize("mode", ["one", "many"])
def test_a_blank_text_is_an_error_unless_it_is_allowed(client: TestClient, mode: str) -> None:
    texts = ["", "a tiger", " \n", "a lion"]
    task = {"labels": LABELS, "mode": mode, "template": "{text}{label}", "show_prompts": True}
    task |= {"template": "{text} This is a"} if mode == "one" else {}
    one = client.post("/v1/classify", json=task | {"texts": texts}).json()
    stream = client.post("/v1/classify", content=lines(task, *texts), headers=NDJSON)
    assert one["data"] == [json.loads(line) for line in stream.text.splitlines()]
    assert ["error" in answer for answer in one["data"]] == [True, False, True, False]
    assert '"allow_blank": true' in one["data"][0]["error"]["message"]
    assert all(
        text in answer["prompts"][0] for text, answer in zip(texts, one["data"], strict=True)
    )

    allowed = client.post("/v1/classify", json=task | {"texts": texts, "allow_blank": True}).json()
    assert not any("error" in answer for answer in allowed["data"])
    assert allowed["data"][1] == one["data"][1]
    assert allowed["usage"]["prompt_tokens"] > one["usage"]["prompt_tokens"]


# --------------------------------------------------------------------------- lines


def test_a_stream_is_fitted_once_however_large_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core_server.queues.fits._MOST", 0)  # nothing is cached
    fitted: list[core_tasks.Task] = []
    fit = core_tasks.Task.fit_prior

    def noted(task: core_tasks.Task, *arguments: Any, **options: Any) -> core_tasks.Task:
        fitted.append(task)
        return fit(task, *arguments, **options)

    monkeypatch.setattr(core_tasks.Task, "fit_prior", noted)
    with TestClient(create_app([Served("fake", model())])) as client:
        body = lines({"labels": LABELS, "level": "content-free"}, *["a tiger"] * 3_000)
        reply = client.post("/v1/classify", content=body, headers=NDJSON)
    assert reply.text.count('"level":"content-free"') == 3_000
    assert len(fitted) == 1


def test_lines_are_answered_in_their_order_beyond_the_limit_of_a_body(client: TestClient) -> None:
    texts = [f"{'a tiger' if n % 3 else 'a lion'} number {n} {'x' * 30}" for n in range(2_500)]
    head = {"labels": LABELS, "template": "{text} This is a"}
    body = lines(head, *texts[:-1], {"text": texts[-1]})
    assert len(body) > 100_000
    reply = client.post("/v1/classify", content=body, headers=NDJSON)
    answers = [json.loads(line) for line in reply.text.splitlines()]
    assert [answer["label"] for answer in answers] == [
        "tiger" if n % 3 else "lion" for n in range(2_500)
    ]


def test_a_bad_line_fails_alone(client: TestClient) -> None:
    body = lines({"labels": LABELS}, "a tiger", 5) + "{\n" + lines({"text": "a lion"}, {})
    reply = client.post("/v1/classify", content=body, headers=NDJSON)
    answers = [json.loads(line) for line in reply.text.splitlines()]
    assert [answer.get("label") for answer in answers] == ["tiger", None, None, "lion", None]
    assert "This must be a string" in answers[1]["error"]["message"]


def test_a_bad_first_line_has_a_status(client: TestClient) -> None:
    for body in ("", "[]\n", lines({"labels": ["a"]}, "x")):
        reply = client.post("/v1/classify", content=body, headers=NDJSON)
        assert reply.status_code == 400, body


def test_more_than_the_limit_of_lines_is_refused() -> None:
    settings = Settings(max_lines=1000)
    with TestClient(create_app([Served("fake", model())], settings)) as client:
        body = lines({"labels": LABELS}, "x" * 2000)
        assert client.post("/v1/classify", content=body, headers=NDJSON).status_code == 413


# --------------------------------------------------------------------------- vLLM's


def test_vllms_classify(client: TestClient) -> None:
    body = {"model": "fake", "input": ["a tiger", "a lion"], "labels": LABELS}
    reply = client.post("/classify", json=body).json()
    assert [row["label"] for row in reply["data"]] == ["tiger", "lion"]
    assert reply["data"][0]["num_classes"] == 2
    assert sum(reply["data"][0]["probs"]) == pytest.approx(1)


def test_tokens_there_and_back(client: TestClient) -> None:
    reply = client.post("/tokenize", json={"prompt": "a tiger", "return_token_strs": True}).json()
    assert reply["tokens"] == model().encode("a tiger")
    assert reply["count"] == len(reply["tokens"]) == len(reply["token_strs"])
    back = client.post("/detokenize", json={"tokens": reply["tokens"]}).json()
    assert back == {"prompt": model().decode(reply["tokens"])}
    chat = [{"role": "user", "content": "Hi"}]
    reply = client.post("/tokenize", json={"messages": chat}).json()
    assert reply["tokens"] == model().encode(model().render_chat(chat))


@pytest.mark.parametrize("tokens", [[-1], [10**9], ["a"], 5, [1.5]])
def test_ids_that_are_none_are_refused(client: TestClient, tokens: object) -> None:
    assert client.post("/detokenize", json={"tokens": tokens}).status_code == 400


# --------------------------------------------------------------------------- what it counts


def test_metrics_count_what_was_done(client: TestClient) -> None:
    client.post("/v1/classify", json={"texts": ["a", "b"], "labels": LABELS})
    client.post("/v1/classify", json={})
    client.post("/v1/completions", json={"model": "fake", "prompt": "a"})
    metrics = dict(
        line.rsplit(" ", 1)
        for line in client.get("/metrics").text.splitlines()
        if not line.startswith("#")
    )
    assert metrics['core_answers_total{status="200"}'] == "2.0"
    assert metrics['core_answers_total{status="400"}'] == "1.0"
    assert metrics['core_decision_questions_total{model="fake"}'] == "2.0"
    assert metrics['core_text_texts_total{model="fake"}'] == "1.0"
    assert float(metrics['core_text_generated_tokens_total{model="fake"}']) > 0
    assert metrics["core_requests"] == "0.0"
