"""Tasks at a level: equal ones are fitted once, and not for who has left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.testclient import TestClient

import core
import core_tasks
from core.errors import GenerationCancelled
from core.testing import FakeModel
from core.types import ClassifyResult
from core_server import Served, Settings, create_app
from core_server.queues.fits import FittedTasks

TASK = core_tasks.Task("{text} This is a", ("lion", "tiger"))


class Slow(FakeModel):
    """A model whose calls wait until they are let go, or cancelled."""

    def __init__(self) -> None:
        super().__init__("x", labels=even)
        self.begun, self.let_go = threading.Event(), threading.Event()
        self.asked = self.cancelled = 0

    def classify(self, prompts: Any, config: Any = None, /, **options: Any) -> Any:
        self.asked += 1
        self.begun.set()
        while not self.let_go.wait(0.001):
            if config.cancel is not None and config.cancel.is_set():
                self.cancelled += 1
                return [ClassifyResult(error=GenerationCancelled()) for _ in prompts]
        return super().classify(prompts, config, **options)


def even(prompt: str, labels: Sequence[str]) -> dict[str, float]:
    """Equal parts for all labels, and more for one that the text names."""
    return {label: 0.2 if f"about {label}." in prompt else 0.1 for label in labels}


async def begun(model: Slow) -> None:
    while not model.begun.is_set():
        await asyncio.sleep(0.001)


def test_equal_tasks_are_fitted_once() -> None:
    model = Slow()

    async def scenario() -> list[Any]:
        tasks = FittedTasks(model)
        asking = [asyncio.create_task(tasks.at_level(TASK, "content-free")) for _ in range(20)]
        await begun(model)
        asking[0].cancel()  # the others wait for the same
        model.let_go.set()
        fitted = await asyncio.gather(*asking[1:])
        assert await tasks.at_level(TASK, "content-free") == fitted[0]
        assert await tasks.at_level(TASK, "raw") is TASK
        tasks.close()
        return fitted

    fitted = asyncio.run(scenario())
    assert model.asked == 1
    assert {task.level for task in fitted} == {"content-free"}


def test_a_fit_that_nobody_waits_for_is_cancelled() -> None:
    model = Slow()

    async def scenario() -> None:
        tasks = FittedTasks(model)
        asking = [asyncio.create_task(tasks.at_level(TASK, "content-free")) for _ in range(2)]
        await begun(model)
        asking[0].cancel()
        await asyncio.sleep(0.02)
        assert model.cancelled == 0
        asking[1].cancel()
        ends = await asyncio.gather(*asking, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        tasks.close()  # which waits for the thread
        assert model.cancelled == 1
        assert not tasks._fits

    asyncio.run(scenario())


def test_a_fit_that_fails_is_tried_again() -> None:
    model = Slow()
    model.let_go.set()

    def failing(*_: Any, **__: Any) -> Any:
        raise core.OutOfMemoryError("It needs 9 GB.")

    async def scenario() -> None:
        tasks = FittedTasks(model)
        classify, model.classify = model.classify, failing  # type: ignore[method-assign]
        with pytest.raises(core.OutOfMemoryError):
            await tasks.at_level(TASK, "content-free")
        model.classify = classify  # type: ignore[method-assign]
        assert (await tasks.at_level(TASK, "content-free")).level == "content-free"
        tasks.close()

    asyncio.run(scenario())


def test_a_fit_has_the_time_of_its_request() -> None:
    model = Slow()
    body = {"texts": ["a"], "labels": ["lion", "tiger"], "level": "content-free"}
    with TestClient(create_app([Served("m", model)], Settings(timeout=0.5))) as client:
        reply = client.post("/v1/classify", json=body)
        assert reply.status_code == 504
        assert "core_requests 0.0" in client.get("/metrics").text
    assert model.cancelled == model.asked  # the models are closed: its thread has ended
