"""Several models by name: loaded at first use, unloaded by least use, never under a request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from core.errors import OutOfMemoryError
from core.options import GenerateConfig
from core.testing import FakeModel
from core.types import GenerateMetrics
from core_server import Loadable, Served, Settings, create_app
from core_server import models as models_
from core_server.hooks import size
from core_server.models import Models

pytestmark = pytest.mark.load  # a busy machine can make it fail


class Store:
    """Makes models, and notes which of them were loaded and closed, in order."""

    def __init__(self, make: Callable[[str], FakeModel] | None = None) -> None:
        self.events: list[str] = []
        self.make = make or (lambda name: FakeModel(f"I am {name}"))
        self.error: Exception | None = None

    def loadable(self, name: str, size_bytes: int = 10) -> Loadable:
        def load() -> Served:
            if self.error is not None:
                raise self.error
            self.events.append(f"+{name}")
            served = Served(name, self.make(name))
            close = served.model.close

            def closed() -> None:
                self.events.append(f"-{name}")
                close()

            served.model.close = closed  # type: ignore[method-assign]
            return served

        return Loadable(name, load, "fake", "fake", size_bytes)


def says(client: TestClient, model: str) -> str:
    reply = client.post("/v1/completions", json={"model": model, "prompt": "Who?"})
    return str(reply.json()["choices"][0]["text"]) if reply.is_success else reply.text


def app(store: Store, limit: int | None, names: str = "abc", **options: Any) -> Any:
    return create_app([*map(store.loadable, names)], Settings(memory_limit=limit, **options))


# --------------------------------------------------------------------------- over HTTP


def test_a_model_is_loaded_when_it_is_asked_for_and_once() -> None:
    store = Store()
    with TestClient(app(store, None)) as client:
        names = [model["id"] for model in client.get("/v1/models").json()["data"]]
        assert (names, store.events) == (["a", "b", "c"], [])
        assert [says(client, name) for name in "bab"] == ["I am b", "I am a", "I am b"]
        assert store.events == ["+b", "+a"]
    assert sorted(store.events[2:]) == ["-a", "-b"]


def test_the_one_used_longest_ago_leaves_under_the_limit() -> None:
    store = Store()
    with TestClient(app(store, 20)) as client:
        assert [says(client, name) for name in "abacb"] == [f"I am {name}" for name in "abacb"]
        assert store.events == ["+a", "+b", "-b", "+c", "-a", "+b"]
        measures = client.get("/metrics").text
    assert 'core_model_loaded{model="a"} 0.0' in measures
    assert 'core_model_bytes{model="b"} 10.0' in measures
    assert 'core_model_loads_total{model="b"} 2.0' in measures
    assert 'core_text_texts_total{model="b"} 2.0' in measures  # those of both its lives
    assert 'core_text_texts_total{model="a"} 2.0' in measures


def test_a_model_beyond_the_limit_is_served_alone() -> None:
    store = Store()
    with TestClient(app(store, 5)) as client:
        assert [says(client, name) for name in "ab"] == ["I am a", "I am b"]
    assert store.events == ["+a", "-a", "+b", "-b"]


def test_what_a_load_raises_is_told_and_the_next_request_tries_again() -> None:
    store = Store()
    store.error = OutOfMemoryError("It needs 9 GB.")
    with TestClient(app(store, None)) as client:
        reply = client.post("/v1/completions", json={"model": "a", "prompt": "Who?"})
        assert (reply.status_code, "It needs 9 GB." in reply.text) == (503, True)
        store.error = None
        assert says(client, "a") == "I am a"


def test_a_model_of_the_callers_own_stays() -> None:
    """One that was given loaded could not be loaded again."""
    store = Store()
    served = Served("own", FakeModel("mine"))
    offered: list[Served | Loadable] = [served, store.loadable("a"), store.loadable("b")]
    with TestClient(create_app(offered, Settings(memory_limit=10))) as client:
        assert [says(client, name) for name in ("a", "own", "b", "own")] == [
            *("I am a", "mine", "I am b", "mine"),
        ]
    assert store.events[:3] == ["+a", "-a", "+b"]


class Held(FakeModel):
    """A model whose streams wait, after their first token, until they are let go."""

    def __init__(self, going: threading.Event, let_go: threading.Event) -> None:
        super().__init__("x")
        self.going, self.let_go = going, let_go

    def generate(self, prompt: str, config: GenerateConfig | None = None, /, **_: Any) -> Any:
        model = self

        class Stream:
            finish_reason = "stop"
            metrics = GenerateMetrics()

            def __iter__(self) -> Iterator[Any]:
                yield from FakeModel("one ").generate("x")
                model.going.set()
                assert model.let_go.wait(60)
                model.check_open()
                yield from FakeModel("two").generate("x")

            def close(self) -> None: ...

        return Stream()


def test_a_model_stays_while_a_stream_of_it_is_sent_and_who_comes_waits() -> None:
    going, let_go = threading.Event(), threading.Event()
    store = Store(lambda name: Held(going, let_go) if name == "a" else FakeModel(f"I am {name}"))
    with TestClient(app(store, 10)) as client, ThreadPoolExecutor(8) as pool:
        body = {"model": "a", "prompt": "p", "stream": True}
        first = pool.submit(client.post, "/v1/completions", json=body)
        assert going.wait(60)
        others = [pool.submit(says, client, name) for name in "bbcc"]
        threading.Event().wait(0.1)
        assert store.events == ["+a"]  # nothing was loaded: there is no room while it is used
        let_go.set()
        assert first.result().text.endswith("data: [DONE]\n\n")
        assert [other.result() for other in others] == ["I am b"] * 2 + ["I am c"] * 2
    assert store.events[1] == "-a"
    assert sorted(store.events[2:]) == ["+b", "+c", "-b", "-c"]


# --------------------------------------------------------------------------- who holds what


def test_who_leaves_while_a_model_is_loaded_holds_nothing() -> None:
    begun, let_go = threading.Event(), threading.Event()
    store = Store()
    slow = store.loadable("a")

    def load() -> Served:
        begun.set()
        assert let_go.wait(60)
        return slow.load()

    async def scenario() -> None:
        models = Models([Loadable("a", load, size_bytes=10), store.loadable("b")], limit=10)
        with models.holding():
            waiting = asyncio.create_task(models.take("a"))
            while not begun.is_set():
                await asyncio.sleep(0.001)
            waiting.cancel()
            let_go.set()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        with models.holding() as release:
            await models.take("b")  # for which the other one, that nobody holds, makes room
            release()
        await models.close()

    asyncio.run(scenario())
    assert store.events == ["+a", "-a", "+b", "-b"]


def test_a_model_that_has_to_leave_takes_no_more_requests() -> None:
    """Else those that come for it would keep it there, and who waits for room would wait on."""
    store = Store()

    async def scenario() -> list[str]:
        models = Models([*map(store.loadable, "ab")], limit=10)
        order: list[str] = []

        async def visit(name: str, visitor: str) -> None:
            with models.holding() as release:
                await models.take(name)
                order.append(visitor)
                release()

        with models.holding() as release:
            await models.take("a")
            waiting = []
            for name in "ba":
                waiting.append(asyncio.create_task(visit(name, name)))
                while not models.shelves[name].waiting or not models.shelves["a"].leaving:
                    assert order == []
                    await asyncio.sleep(0)
            release()
        await asyncio.wait_for(asyncio.gather(*waiting), 60)
        await models.close()
        return order

    assert asyncio.run(scenario()) == ["b", "a"]


def test_a_model_serves_on_while_another_waits_for_its_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever holds it for long holds up neither those who ask for it nor a third model."""
    monkeypatch.setattr(models_, "_PATIENCE", 0.02)
    store = Store()

    async def visit(models: Models, name: str) -> str:
        with models.holding() as release:
            await models.take(name)
            release()
        return name

    async def scenario() -> None:
        small = store.loadable("c", size_bytes=2)
        models = Models([*map(store.loadable, "ab"), small], limit=12)
        with models.holding() as release:
            await models.take("a")
            waiting = asyncio.create_task(visit(models, "b"))
            await asyncio.sleep(0)
            for name in "acac":  # the room that b waits for is a's alone
                assert await asyncio.wait_for(visit(models, name), 60) == name
            assert not waiting.done()
            release()
        assert await asyncio.wait_for(waiting, 60) == "b"
        await models.close()

    asyncio.run(scenario())
    assert store.events[:2] == ["+a", "+c"]
    assert store.events.index("-a") < store.events.index("+b")


def test_a_model_that_is_always_asked_for_makes_room_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(models_, "_PATIENCE", 0.01)
    store = Store()

    async def scenario() -> int:
        models = Models([*map(store.loadable, "ab")], limit=10)
        visits, over = 0, False

        async def again_and_again() -> None:
            nonlocal visits
            while not over:
                with models.holding() as release:
                    await models.take("a")
                    visits += 1
                    await asyncio.sleep(0.03)
                    release()

        overlapping = [asyncio.create_task(again_and_again()) for _ in range(3)]
        await asyncio.sleep(0.01)
        with models.holding() as release:
            await asyncio.wait_for(models.take("b"), 60)
            release()
        over = True
        await asyncio.gather(*overlapping)
        await models.close()
        return visits

    assert asyncio.run(scenario()) >= 3
    assert store.events[:3] == ["+a", "-a", "+b"]


def test_who_no_longer_waits_for_room_has_nothing_loaded() -> None:
    store = Store()

    async def scenario() -> None:
        models = Models([*map(store.loadable, "ab")], limit=10)
        with models.holding() as release:
            await models.take("a")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(models.take("b"), 0.01)
            release()
        loading = models.shelves["b"].loading
        assert loading is not None
        await asyncio.wait_for(loading, 60)
        await models.close()

    asyncio.run(scenario())
    assert store.events in (["+a", "-a"], ["+a", "-a", "+b", "-b"])


Visit = tuple[str, int, bool]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.booleans()),
        min_size=1,
        max_size=25,
    ),
    st.integers(5, 45),
)
def test_no_order_of_visits_closes_a_model_under_one_or_keeps_one_waiting(
    visits: list[Visit], limit: int
) -> None:
    """Each visit holds a model for some turns of the loop; some leave before they have it."""
    store = Store()

    async def scenario() -> None:
        models = Models([*map(store.loadable, "abcd")], limit)
        taken = await asyncio.wait_for(_all(models, visits, limit), 60)
        assert taken >= sum(1 for _, _, leaves in visits if not leaves)
        assert all(shelf.holders == 0 for shelf in models.shelves.values())
        await models.close()

    asyncio.run(scenario())
    for name in "abcd":
        own = [event[0] for event in store.events if event[1] == name]
        assert own == ["+", "-"] * (len(own) // 2)


async def _all(models: Models, visits: list[Visit], limit: int) -> int:
    taken = 0

    async def visit(name: str, turns: int) -> None:
        nonlocal taken
        with models.holding() as release:
            try:
                served = await models.take(name)
                taken += 1
                for _ in range(turns):
                    await asyncio.sleep(0)
                    assert not served.model._closed  # type: ignore[attr-defined]
                    loaded = [s for s in models.shelves.values() if s.served is not None]
                    assert sum(s.bytes_ for s in loaded) <= max(limit, 10)
            finally:
                release()

    tasks = [asyncio.create_task(visit(name, turns)) for name, turns, _ in visits]
    await asyncio.sleep(0)
    for task, (_, _, leaves) in zip(tasks, visits, strict=True):
        if leaves:
            task.cancel()
            await asyncio.sleep(0)
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        assert end is None or isinstance(end, asyncio.CancelledError), end
    return taken


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("6GB", 6 * 10**9), ("1.5 GiB", 3 * 2**29), ("500m", 5 * 10**8), ("12", 12), ("2kb", 2000)],
)
def test_sizes(text: str, bytes_: int) -> None:
    assert size(text) == bytes_


@pytest.mark.parametrize("text", ["", "GB", "-1", "1e", "6 gold", "nan"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter):
        size(text)
