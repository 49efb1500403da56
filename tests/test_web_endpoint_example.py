"""examples/web_endpoint.py answers, and ends the work of a client that leaves."""

from __future__ import annotations

import asyncio
import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import core
from core.testing import FakeModel

EXAMPLE = Path(__file__).parents[1] / "examples" / "web_endpoint.py"
WAIT = 60.0


def said(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    counts = [prompt.count(label) + 0.5 for label in labels]
    return {label: count / sum(counts) for label, count in zip(labels, counts, strict=True)}


@pytest.fixture
def create_app() -> Any:
    return runpy.run_path(str(EXAMPLE))["create_app"]


def test_it_answers_and_closes_its_model(create_app: Any) -> None:
    model = FakeModel("Hello there.", labels=said)
    with TestClient(create_app(model)) as client:
        body: dict[str, Any] = {"prompts": ["good", ""], "labels": ["good", "bad"]}
        first, second = client.post("/classify", json=body).json()["rows"]
        assert (first["label"], first["error"]) == ("good", None)
        assert second["error"]["type"] == "EmptyPromptError"
        wrong = client.post("/classify", json={**body, "labels": ["a", "a"]})
        assert wrong.status_code == 422
        assert "Duplicate label" in wrong.json()["error"]
        assert client.post("/chat", json={"message": "hi"}).text == "Hello there."
    with pytest.raises(core.ModelClosedError):
        model.classify(["good"])


def test_who_leaves_ends_the_answer(create_app: Any) -> None:
    model = FakeModel("x" * 4000)
    app = create_app(model)
    scope = {"type": "http", "method": "POST", "path": "/chat", "headers": [], "query_string": b""}

    async def talk() -> None:
        begun, left = asyncio.Event(), asyncio.Event()
        asked = iter([{"type": "http.request", "body": b'{"message": "hi"}', "more_body": False}])

        async def receive() -> Any:
            for message in asked:
                return message
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message.get("body"):
                begun.set()
                await left.wait()

        request = asyncio.create_task(app(scope, receive, send))
        await begun.wait()
        left.set()
        await request
        cancel = model.calls[0].config.cancel
        assert cancel is not None
        while not cancel.is_set():
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(talk(), WAIT))
