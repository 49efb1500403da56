"""Lines of batch files: each endpoint, what is wrong with a line, and the lines that answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core_wires import batch
from core_wires.errors import OPENAI, SYSTEM_ONE
from core_wires.generation import GenerationRequest
from core_wires.questions import DecisionRequest, PredicateAnswer

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
LINE: dict[str, Any] = {
    "custom_id": "a",
    "method": "POST",
    "url": "/v1/chat/completions",
    "body": BODY,
}
NOUL = {"model": "m", "state": "x", "questions": {"q": {"type": "noul", "instructions": "?"}}}


def test_each_endpoint_is_read() -> None:
    chat = batch.read(json.dumps(LINE))
    assert (chat.custom_id, chat.url, chat.error) == ("a", "/v1/chat/completions", None)
    assert isinstance(chat.request, GenerationRequest)
    assert chat.request.kind == "chat"
    noul = batch.read(json.dumps({**LINE, "url": "/v1/systemone", "body": NOUL}).encode())
    assert isinstance(noul.request, DecisionRequest)
    text = {"model": "m", "prompt": "x"}
    assert batch.read({**LINE, "url": "/v1/completions", "body": text}).request is not None
    assert batch.read({**LINE, "custom_id": 7}).custom_id == "7"


@pytest.mark.parametrize(
    ("line", "custom_id", "param"),
    [
        ("{", None, None),
        ("[]", None, None),
        ({**LINE, "custom_id": None}, None, "custom_id"),
        ({**LINE, "custom_id": " "}, None, "custom_id"),
        ({**LINE, "method": "GET"}, "a", "method"),
        ({**LINE, "url": "/v1/embeddings"}, "a", "url"),
        ({**LINE, "url": None}, "a", "url"),
        ({**LINE, "body": None}, "a", "body"),
        ({**LINE, "body": "x"}, "a", "body"),
        ({**LINE, "bodies": 1}, "a", "bodies"),
        ({**LINE, "body": {**BODY, "stream": True}}, "a", "stream"),
        ({**LINE, "body": {**BODY, "n": 2}}, "a", "n"),
        (
            {**LINE, "body": {**BODY, "logprobs": True, "top_logprobs": 2, "max_tokens": 1}},
            "a",
            "top_logprobs",
        ),
        (
            {**LINE, "url": "/v1/completions", "body": {"model": "m", "prompt": "x", "echo": True}},
            "a",
            "echo",
        ),
    ],
)
def test_a_wrong_line_keeps_its_name(line: Any, custom_id: str | None, param: str | None) -> None:
    read = batch.read(line)
    assert (read.custom_id, read.request) == (custom_id, None)
    assert read.error is not None
    error: Any = read.error.body["error"]
    assert error["param"] == param
    answer = batch.refused(read.custom_id, read.error, id="1")
    assert answer["custom_id"] == custom_id
    assert answer["error"] is None
    assert answer["response"] == {
        "status_code": 400,
        "request_id": "1",
        "body": {"error": error},
    }


def test_a_body_is_refused_in_its_own_dialect() -> None:
    read = batch.read({**LINE, "url": "/v1/systemone", "body": {"model": "m"}})
    assert read.error is not None
    assert read.error.status == 422
    assert (batch.dialect("/v1/systemone"), batch.dialect("")) == (SYSTEM_ONE, OPENAI)


def test_answers_are_lines() -> None:
    assert batch.answered("a", {"x": 1}, id="req-1") == {
        "id": "batch_req-1",
        "custom_id": "a",
        "response": {"status_code": 200, "request_id": "req-1", "body": {"x": 1}},
        "error": None,
    }
    assert batch.unanswered("a", "cancelled", "The job ended.", id="1") == {
        "id": "batch_1",
        "custom_id": "a",
        "response": None,
        "error": {"code": "cancelled", "message": "The job ended."},
    }


def test_a_decision_is_answered_on_the_wire_that_it_came_by() -> None:
    noul = batch.read({**LINE, "url": "/v1/systemone", "body": NOUL}).request
    predicate = {"type": "predicate", "name": "q", "instructions": "?"}
    body = {"model": "m", "input": "x", "questions": [predicate]}
    theirs = batch.read({**LINE, "url": "/v1/decisions", "body": body}).request
    assert isinstance(noul, DecisionRequest)
    assert isinstance(theirs, DecisionRequest)
    answer = PredicateAnswer(0.75)
    assert batch.decided(noul, [answer], model="m")["answers"] == {
        "q": {"type": "noul", "noul": 0.75, "x_level": "raw", "x_reading": "labels"}
    }
    assert batch.decided(theirs, [answer], model="m")["answers"] == [
        {"type": "predicate", "name": "q", "probability": 0.75}
    ]


def test_ids_are_those_of_their_parts() -> None:
    assert batch.stable_id("req", "a", 1) == batch.stable_id("req", "a", 1)
    assert batch.stable_id("req", "a", 1) != batch.stable_id("req", "a1")
    assert batch.stable_id("req", "\ud800").startswith("req-")
