"""core's own wire, asked without its client: keys, limits, bodies that are none, who leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from core.protocols import Capability
from core.testing import FakeModel
from core_server import Served, Settings, create_app
from core_wires.contract import OPERATIONS, PREFIX


@pytest.fixture
def client() -> Iterator[TestClient]:
    model = FakeModel("Good day", labels=lambda prompt, labels: labels[0])
    served = Served("fake", model, backend="fake", capabilities=model.capabilities)
    with TestClient(create_app([served], Settings(max_body=10_000))) as client:
        yield client


def lines(client: TestClient, operation: str, **body: Any) -> list[dict[str, Any]]:
    reply = client.post(PREFIX + operation, json=body)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in reply.text.splitlines()]


def test_a_description_says_what_the_model_offers_and_refuses(client: TestClient) -> None:
    description = client.post(f"{PREFIX}describe", json={}).json()["value"]
    assert (description["name"], description["model_type"], description["wire"]) == (
        "fake",
        "fake",
        1,
    )
    assert "labels" in description["capabilities"]
    assert description["refused"] == ["typical_p"]
    assert len(description["fingerprint"]) == 32
    left_out = {Capability.ROTATE, Capability.MODEL_PROBE, Capability.MODEL_FINDING}
    assert left_out.isdisjoint(description["capabilities"])


def test_events_of_a_stream_and_of_rows(client: TestClient) -> None:
    events = lines(client, "generate", arguments={"prompt": "a"}, options={"max_tokens": 2})
    assert [event["token"]["text"] for event in events[:-1]] == ["G", "o"]
    assert events[-1]["end"]["finish_reason"] == "length"
    prompts = {"prompts": ["a", ""]}
    events = lines(client, "classify", arguments=prompts, options={"labels": ["x", "y"]})
    assert events[0]["result"]["label"] == "x"
    assert events[1]["result"]["error"]["type"] == "EmptyPromptError"
    assert "end" in events[2]


@pytest.mark.parametrize(
    ("operation", "body", "kind"),
    [
        ("generate", {"arguments": {}}, "RequestError"),
        ("generate", {"arguments": {"prompt": 7}}, "RequestError"),
        ("generate", {"arguments": {"prompt": "a", "path": "/etc/passwd"}}, "RequestError"),
        ("classify", {"arguments": {"prompts": "a"}}, "RequestError"),
        ("decode", {"arguments": {"ids": [True]}}, "RequestError"),
        ("score", {"arguments": {"prompts": [], "continuations": []}}, "UnsupportedOperationError"),
        ("memory", {}, "UnsupportedOperationError"),
        ("generate", {"arguments": {"prompt": ""}}, "EmptyPromptError"),
    ],
)
def test_a_wrong_call_is_told_in_its_last_line(
    operation: str, body: dict[str, Any], kind: str, client: TestClient
) -> None:
    assert lines(client, operation, **body)[-1]["error"]["type"] == kind


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"model": 7}',
        b'{"options": []}',
        b'{"options": {"temperature": -1}}',
        b'{"options": {"cancel": true}}',
        b'{"options": {"__class__": 1}}',
        b"[" * 9000,
    ],
)
def test_a_wrong_body_is_a_400(body: bytes, client: TestClient) -> None:
    reply = client.post(f"{PREFIX}generate", content=body)
    assert reply.status_code == 400, reply.text
    assert "error" in reply.json()


def test_limits_and_keys_are_those_of_every_route(client: TestClient) -> None:
    long = {"arguments": {"prompt": "a" * 20_000}}
    assert client.post(f"{PREFIX}generate", json=long).status_code == 413
    assert client.post(f"{PREFIX}generate", json={"model": "other"}).status_code == 404
    assert client.get(f"{PREFIX}generate").status_code == 405
    served = Served("fake", FakeModel("x"))
    with TestClient(create_app([served], Settings(api_key="key"))) as locked:
        for operation in OPERATIONS:
            assert locked.post(PREFIX + operation, json={}).status_code == 401
    nobody = client.post(f"{PREFIX}cancel", json={"id": "of nobody"})
    assert nobody.json() == {"value": False}
