"""``aclose(drain=True)``: a model is replaced under load, and no stream breaks."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import core.aio
from core.errors import ModelClosedError
from core.testing import FakeModel

pytestmark = pytest.mark.load  # a busy machine can make it fail
PATIENCE = 60.0
TEXT = "A long answer of many words. " * 20


class Gated(FakeModel):
    """A model whose classify waits until it may go on."""

    def __init__(self) -> None:
        super().__init__(TEXT, labels=lambda prompt, labels: dict.fromkeys(labels, 0.1))
        self.begun, self.go_on = threading.Event(), threading.Event()

    def classify(self, prompts: Any, config: Any = None, /, **options: Any) -> Any:
        self.begun.set()
        assert self.go_on.wait(PATIENCE)
        return super().classify(prompts, config, **options)


def test_a_model_is_swapped_under_load() -> None:
    async def run() -> None:
        old, new = core.aio.of(FakeModel(TEXT)), core.aio.of(FakeModel(TEXT))
        current = old
        begun = 0
        refused = 0

        async def client(asks: int) -> list[str]:
            nonlocal begun, refused
            texts: list[str] = []
            while len(texts) < asks:
                try:
                    parts: list[str] = []
                    async with contextlib.aclosing(current.generate("x", max_tokens=200)) as stream:
                        async for token in stream:
                            begun += not parts
                            parts.append(token.text)
                            await asyncio.sleep(0)
                    texts.append("".join(parts))
                except ModelClosedError:
                    refused += 1  # chosen before the swap, begun after it: asked again
            return texts

        clients = [asyncio.create_task(client(5)) for _ in range(12)]
        while begun < 12:
            await asyncio.sleep(0)
        current = new
        await asyncio.wait_for(old.aclose(drain=True), PATIENCE)
        with pytest.raises(ModelClosedError):
            old.generate("x")
        with pytest.raises(ModelClosedError):
            old.model.generate("x")
        for texts in await asyncio.gather(*clients):
            assert texts == [TEXT[:200]] * 5
        assert refused <= 12
        assert new.model.calls  # type: ignore[attr-defined]
        await new.aclose()

    asyncio.run(run())


def test_a_call_ends_first_and_new_ones_are_refused() -> None:
    async def run() -> None:
        gated = Gated()
        model = core.aio.of(gated)
        call = asyncio.create_task(model.classify(["a"], labels=("x", "y")))
        while not gated.begun.is_set():
            await asyncio.sleep(0.001)
        closing = asyncio.create_task(model.aclose(drain=True))
        await asyncio.sleep(0.02)
        assert not closing.done()
        for refused in (model.classify(["a"]), model.encode("a")):
            with pytest.raises(ModelClosedError, match="takes no new ones"):
                await refused
        with pytest.raises(ModelClosedError, match="takes no new ones"):
            model.generate("a")
        gated.go_on.set()
        [row] = await call
        assert row.error is None
        await asyncio.wait_for(closing, PATIENCE)
        await model.aclose(drain=True)  # closing twice is fine

    asyncio.run(run())


def test_what_is_not_begun_is_not_waited_for() -> None:
    async def run() -> None:
        model = core.aio.of(FakeModel(TEXT))
        waiting = model.generate("x")
        await asyncio.wait_for(model.aclose(drain=True), PATIENCE)
        with pytest.raises(ModelClosedError):
            await anext(waiting)

    asyncio.run(run())


@pytest.mark.parametrize("how", ["closed", "dropped", "cancelled"])
def test_a_stream_that_is_left_is_not_waited_for(how: str) -> None:
    async def run() -> None:
        model = core.aio.of(FakeModel(TEXT))
        stream = model.generate("x")
        await anext(stream)
        if how == "closed":
            await stream.aclose()
        elif how == "cancelled":
            gated = asyncio.create_task(_read(stream))
            await asyncio.sleep(0)
            gated.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gated
        del stream
        gc.collect()
        await asyncio.wait_for(model.aclose(drain=True), PATIENCE)

    asyncio.run(run())


async def _read(stream: AsyncIterator[Any]) -> None:
    async for _ in stream:
        await asyncio.sleep(0.01)


def test_a_drain_that_is_given_up_leaves_the_model_open() -> None:
    async def run() -> None:
        model = core.aio.of(FakeModel(TEXT))
        stream = model.generate("x", max_tokens=3)
        parts = [await anext(stream)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await model.aclose(drain=True)
        parts += [token async for token in stream]
        assert "".join(token.text for token in parts) == TEXT[:3]
        with pytest.raises(ModelClosedError):
            await model.classify(["a"])
        await model.aclose()

    asyncio.run(run())


def test_iterators_of_results_are_waited_for() -> None:
    async def prompts() -> AsyncIterator[str]:
        for text in "abc":
            yield text

    async def run(source: AsyncIterator[str] | Iterator[str]) -> None:
        model = core.aio.of(FakeModel(labels=lambda prompt, labels: dict.fromkeys(labels, 0.1)))
        results = model.classify_iter(source, labels=("x", "y"))
        await anext(results)
        closing = asyncio.create_task(model.aclose(drain=True))
        await asyncio.sleep(0.01)
        assert not closing.done()
        assert len([result async for result in results]) == 2
        await asyncio.wait_for(closing, PATIENCE)

    asyncio.run(run(prompts()))
    asyncio.run(run(iter("abc")))


class LateAtFirst:
    """Prompts without an end, the first of which comes late. A cancelled wait ends nothing."""

    def __init__(self) -> None:
        self.late = PATIENCE

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        late, self.late = self.late, 0.0
        await asyncio.sleep(late)
        return "a"


def test_results_whose_wait_was_given_up_have_ended() -> None:
    async def run() -> None:
        model = core.aio.of(FakeModel(labels=lambda prompt, labels: dict.fromkeys(labels, 0.1)))
        results = model.classify_iter(LateAtFirst(), labels=("x", "y"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(results), 0.01)
        assert await anext(results, None) is None
        await asyncio.wait_for(model.aclose(drain=True), PATIENCE)

    asyncio.run(run())
