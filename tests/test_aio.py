"""core.aio: what is awaited is what is called; a task that is cancelled stops its request."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import core
import core.aio
from core.errors import (
    GenerationCancelled,
    InvalidOptionError,
    ModelClosedError,
    UnsupportedOperationError,
    UnsupportedOptionError,
)
from core.registry import REGISTRY
from core.testing import FakeBackend, FakeModel, write_model

pytestmark = pytest.mark.load  # a busy machine can make it fail

LABELS = ("x", "yy")
PATIENCE = 60.0


def fake(text: str = "Good day to you") -> FakeModel:
    return FakeModel(text, labels=lambda prompt, labels: {each: len(each) / 9 for each in labels})


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "core-aio"]


async def until(met: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < end
        await asyncio.sleep(0.002)


def test_calls_are_what_they_are() -> None:
    async def run() -> None:
        own, model = fake(), core.aio.of(fake())
        row, failed = await model.classify(["a", ""], labels=LABELS)
        assert [row] == own.classify(["a"], labels=LABELS)
        assert isinstance(failed.error, core.EmptyPromptError)
        assert await model.batch_generate(["a"], max_tokens=3) == own.batch_generate(
            ["a"], max_tokens=3
        )
        assert model.metrics.generated_tokens == 3
        assert await model.encode("ab") == [97, 98]
        assert await model.decode([97]) == "a"
        turns = [{"role": "user", "content": "a"}]
        assert await model.render_chat(turns) == own.render_chat(turns)
        [found] = await model.hidden_states(["a"], layers=(0,))
        assert found.layers == (0,)
        assert (model.info, model.model_type) == (own.info, own.model_type)

    asyncio.run(run())
    asyncio.run(until(lambda: threads() == []))


def test_streams_are_what_they_are() -> None:
    async def run() -> None:
        own, model = fake(), core.aio.of(fake())
        turns = [{"role": "user", "content": "a"}]
        for ask, given in (("generate", "a"), ("chat", turns), ("submit", "a")):
            config = core.GenerateConfig(max_tokens=5, return_logprobs=True)
            stream: Any = getattr(model, ask)(given, config)
            assert [stream.finish_reason] == [None]
            assert [each async for each in stream] == [*getattr(own, ask)(given, config)]
            assert stream.finish_reason == "length"
            assert stream.metrics.generated_tokens == model.metrics.generated_tokens == 5
        assert await model.generate("a").text() == "Good day to you"
        pairs = [each async for each in model.batch_stream(["a", "b"], max_tokens=2)]
        assert pairs == [*own.batch_stream(["a", "b"], max_tokens=2)]
        rows = [each async for each in model.classify_iter(iter(["a", "b"]), labels=LABELS)]
        assert rows == own.classify(["a", "b"], labels=LABELS)

    asyncio.run(run())


def test_prompts_that_come_asynchronously() -> None:
    taken: list[int] = []

    async def prompts() -> AsyncIterator[str]:
        for number in range(100):
            taken.append(number)
            yield f"prompt {number}"

    async def run() -> None:
        model = core.aio.of(fake())
        found = model.classify_iter(prompts(), labels=LABELS)
        first = await anext(found)
        assert first.label == "yy"
        assert len(taken) < 50
        assert len([each async for each in found]) == 99
        with pytest.raises(InvalidOptionError):
            model.classify_iter(prompts(), temperature=-1.0)

    asyncio.run(run())


def test_wrong_options_and_what_is_not_offered() -> None:
    async def run() -> None:
        model = core.aio.of(fake())
        with pytest.raises(InvalidOptionError):
            model.generate("a", temperature=-1.0)
        with pytest.raises(TypeError):
            model.generate("a", no_such_option=1)  # type: ignore[call-arg]
        with pytest.raises(InvalidOptionError):
            await model.classify(["a"], temperature=-1.0)
        with pytest.raises(InvalidOptionError):
            await model.classify(["a"], cancel="no")  # type: ignore[arg-type]
        with pytest.raises(UnsupportedOperationError, match="score"):
            await model.score(["a"], ["b"])
        iterable: Any = model.generate("a")
        with pytest.raises(TypeError, match="batch_stream"):  # only classify_iter takes one
            model.batch_stream(iterable)
        await model.aclose()
        await model.aclose()
        with pytest.raises(ModelClosedError):
            await model.classify(["a"])
        with pytest.raises(ModelClosedError):
            model.generate("a")

    asyncio.run(run())


class Waiting(FakeModel):
    """Works until it is cancelled, and counts who works."""

    def __init__(self) -> None:
        super().__init__("x" * 100_000, labels=lambda prompt, labels: labels[0])
        self.working = self.stopped = 0

    def classify(self, prompts: Any, config: Any = None, /, **options: Any) -> Any:
        if not options.get("labels"):
            return super().classify(prompts, config, **options)
        self.working += 1
        while not options["cancel"].is_set():
            time.sleep(0.002)
        self.stopped += 1
        raise GenerationCancelled


def test_a_cancelled_task_stops_its_request_and_the_model_works_on() -> None:
    async def run() -> None:
        model = core.aio.of(own := Waiting())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await model.classify(["a"], labels=LABELS)
        task = asyncio.ensure_future(model.classify(["a"], labels=LABELS))
        await until(lambda: own.working == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: own.stopped == 2)
        # The caller's own cancel still counts.
        event = threading.Event()
        task = asyncio.ensure_future(model.classify(["a"], labels=LABELS, cancel=event))
        await until(lambda: own.working == 3)
        event.set()
        with pytest.raises(GenerationCancelled):
            await task
        assert len(await model.classify(["a"])) == 1

    asyncio.run(run())
    asyncio.run(until(lambda: threads() == []))


def test_a_stream_that_is_closed_cancelled_or_dropped_ends_its_thread() -> None:
    async def run() -> None:
        model = core.aio.of(Waiting())
        async with contextlib.aclosing(model.generate("a", max_tokens=100_000)) as stream:
            await anext(stream)
        await until(lambda: threads() == [])
        assert stream.finish_reason == "cancelled"
        assert [each async for each in stream] == []

        # One that nobody reads goes ahead by its buffer alone.
        dropped = model.generate("a", max_tokens=100_000)
        await anext(dropped)
        await asyncio.sleep(0.1)
        assert len(threads()) == 1
        del dropped, stream
        gc.collect()
        await until(lambda: threads() == [])

        async def read() -> None:
            async for _ in model.generate("a", max_tokens=100_000):
                await asyncio.sleep(0)

        task = asyncio.ensure_future(read())
        await until(lambda: len(threads()) == 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        del task
        await until(lambda: threads() == [])
        unread = model.generate("a")
        await unread.aclose()
        assert [each async for each in unread] == []

    asyncio.run(run())


class Uncancellable(FakeModel):
    """Takes no cancel, as a backend may."""

    def classify(self, prompts: Any, config: Any = None, /, **options: Any) -> Any:
        if "cancel" in options:
            raise UnsupportedOptionError("cancel", "fake")
        return super().classify(prompts, config, **options)


def test_a_backend_that_takes_no_cancel_works_all_the_same() -> None:
    async def run() -> None:
        model = core.aio.of(Uncancellable("x"))
        assert len(await model.classify(["a"])) == 1
        with pytest.raises(UnsupportedOptionError):
            await model.classify(["a"], cancel=threading.Event())

    asyncio.run(run())


def test_many_tasks_at_once_and_metrics_of_each() -> None:
    async def run() -> None:
        model = core.aio.of(FakeModel(lambda prompt: prompt * 3))

        async def one(text: str) -> None:
            assert await model.generate(text).text() == text * 3
            assert model.metrics.prompt_tokens == len(text)

        await asyncio.gather(*(one("ab" * count) for count in range(1, 30)))

    asyncio.run(run())


def test_a_load_is_awaited_and_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REGISTRY, "_registered", {})
    backend = FakeBackend("hello", name="fake-aio")
    core.register(backend)
    path = write_model(tmp_path / "model")
    held = threading.Event()
    load = backend.load_model

    def waits(*arguments: Any) -> Any:
        held.wait(PATIENCE)
        return load(*arguments)

    async def run() -> None:
        async with await core.aio.load_model(path, backend="fake-aio") as model:
            assert await model.generate("a").text() == "hello"
        monkeypatch.setattr(backend, "load_model", waits)
        task = asyncio.ensure_future(core.aio.load_model(path, backend="fake-aio"))
        await until(lambda: len(threads()) == 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        held.set()
        await until(lambda: threads() == [])
        with pytest.raises(ModelClosedError):
            backend.models[-1].generate("a")

    asyncio.run(run())


def test_no_stream_stays_however_it_ends(left_of_streams: Callable[..., dict[str, int]]) -> None:
    left = left_of_streams(fake())
    assert len(left) == 8
    assert not any(left.values()), left


def test_an_error_is_raised_again_and_its_frames_are_not_kept() -> None:
    async def run() -> None:
        stream = core.aio.of(fake()).generate("")
        raised = []
        for _ in range(2):
            with pytest.raises(core.EmptyPromptError) as caught:
                await stream.text()
            raised.append(caught.value)
        assert raised[0] is not raised[1]
        assert str(raised[0]) == str(raised[1])
        assert stream._error is not None
        assert stream._error.__traceback__ is None

    asyncio.run(run())
