"""Places, bodies on their way, lines: all of it is counted, and given back."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from core.testing import FakeModel
from core_server import Loadable, Served, Settings, create_app
from core_server.places import Budget, Share
from core_server.routes import classify
from core_server.threads import Threads
from core_wires.errors import WireError

pytestmark = pytest.mark.load  # a busy machine can make it fail

NDJSON = {"Content-Type": "application/x-ndjson"}
HEAD = {"labels": ["x", "y"], "template": "{text} is"}


def served() -> Served:
    even: Any = lambda prompt, labels: dict.fromkeys(labels, 0.5 / len(labels))  # noqa: E731
    return Served("m", FakeModel("Hi", labels=even, context_length=500))


class Sending:
    """One request by hand, whose body comes a piece at a time."""

    def __init__(
        self,
        app: Any,
        path: str,
        type_: bytes = b"application/json",
        reads_on: asyncio.Event | None = None,
    ) -> None:
        self.pieces: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.status, self.body, self._reads_on = 0, b"", reads_on
        scope = {
            **{"type": "http", "method": "POST", "path": path, "raw_path": path.encode()},
            **{"query_string": b"", "headers": [(b"content-type", type_)], "root_path": ""},
            **{"http_version": "1.1", "scheme": "http", "server": ("localhost", 1)},
            **{"client": ("127.0.0.1", 1), "asgi": {"version": "3.0", "spec_version": "2.3"}},
        }
        self.task = asyncio.create_task(app(scope, self.pieces.get, self._send))

    async def _send(self, message: dict[str, Any]) -> None:
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")
        if self._reads_on is not None and self.body:
            await self._reads_on.wait()

    async def piece(self, data: bytes, *, last: bool = False) -> None:
        """Send a piece, and let the server take it."""
        self.pieces.put_nowait({"type": "http.request", "body": data, "more_body": not last})
        for _ in range(50):
            await asyncio.sleep(0)

    def leave(self) -> None:
        self.pieces.put_nowait({"type": "http.disconnect"})


Scenario = Callable[[Any, TestClient], Any]


def played(settings: Settings, scenario: Scenario) -> None:
    app = create_app([served()], settings)
    asyncio.run(scenario(app, TestClient(app)))


def test_a_body_on_its_way_has_a_place_and_its_bytes() -> None:
    async def scenario(app: Any, client: TestClient) -> None:
        first = Sending(app, "/v1/classify")
        await first.piece(b"a" * 5_000)
        metrics = await asyncio.to_thread(lambda: client.get("/metrics").text)
        assert "core_requests 1.0" in metrics
        assert "core_memory_bytes 5000.0" in metrics

        second = Sending(app, "/v1/classify")  # which is refused before any of its body is there
        await second.task
        assert second.status == 429
        assert b"Too many requests (1 in progress)" in second.body

        first.leave()
        await first.task
        metrics = await asyncio.to_thread(lambda: client.get("/metrics").text)
        assert "core_requests 0.0" in metrics
        assert "core_memory_bytes 0.0" in metrics

    played(Settings(max_queue=1), scenario)


def test_bodies_together_have_the_memory_that_there_is() -> None:
    async def scenario(app: Any, client: TestClient) -> None:
        sending = [Sending(app, "/v1/classify") for _ in range(3)]
        for sender in sending:
            await sender.piece(b"a" * 40_000)
        assert [sender.status for sender in sending] == [0, 0, 429]
        assert b"100,000" in sending[2].body
        sending[0].leave()
        await sending[0].task
        again = Sending(app, "/v1/classify")
        await again.piece(b"a" * 40_000)
        assert again.status == 0
        for sender in (sending[1], again):
            sender.leave()
            await sender.task

    played(Settings(max_memory=100_000), scenario)


def test_bodies_of_lines_together_have_the_disk_that_there_is() -> None:
    async def scenario(app: Any, client: TestClient) -> None:
        sending = [Sending(app, "/v1/classify", b"application/x-ndjson") for _ in range(2)]
        for sender in sending:
            await sender.piece(b"a" * 600_000)
        assert [sender.status for sender in sending] == [0, 429]
        assert "core_spooled_bytes 600000.0" in await asyncio.to_thread(
            lambda: client.get("/metrics").text
        )
        sending[0].leave()
        await sending[0].task
        assert "core_spooled_bytes 0.0" in await asyncio.to_thread(
            lambda: client.get("/metrics").text
        )

    played(Settings(max_spooled=1_000_000), scenario)


# --------------------------------------------------------------------------- shares


def test_a_share_is_given_back_once() -> None:
    budget = Budget(100)
    one, two = Share(budget), Share(budget)
    one.take(60)
    with pytest.raises(WireError, match="60 of 100") as caught:
        two.take(50)
    assert caught.value.status == 429
    with pytest.raises(WireError, match="all requests together is 100") as caught:
        two.take(101)
    assert caught.value.status == 413
    two.take(40)
    one.close()
    one.close()
    assert budget.taken == 40
    two.close()
    assert budget.taken == 0


def test_who_waits_for_bytes_has_them_once_they_are_there() -> None:
    budget = Budget(100)
    one, two = Share(budget), Share(budget)

    async def scenario() -> None:
        one.take(60)
        waiting = asyncio.create_task(two.wait_for(50))
        await asyncio.sleep(0)
        assert not waiting.done()
        one.close()
        await asyncio.wait_for(waiting, 60)
        with pytest.raises(WireError):
            await two.wait_for(60)

    asyncio.run(scenario())
    assert budget.taken == 50


# --------------------------------------------------------------------------- threads


def test_what_is_large_holds_up_nothing_small() -> None:
    let_go = threading.Event()

    async def scenario() -> None:
        threads = Threads()
        large = [
            asyncio.create_task(threads.run(1 << 21, lambda: let_go.wait(60))) for _ in range(40)
        ]
        assert await asyncio.wait_for(threads.run(1, lambda: "small"), 60) == "small"
        let_go.set()
        assert await asyncio.gather(*large) == [True] * 40
        threads.close()

    asyncio.run(scenario())


class Body:
    """The content of a request, which nothing may keep once it has left."""

    def length(self) -> int:
        return 1


def test_a_queue_keeps_nothing_of_who_has_left() -> None:
    let_go = threading.Event()

    async def scenario() -> None:
        threads, body = Threads(), Body()
        running = [
            asyncio.create_task(threads.run(1 << 21, lambda: let_go.wait(60))) for _ in range(2)
        ]
        await asyncio.sleep(0)
        waiting = asyncio.create_task(threads.run(1 << 21, body.length))
        await asyncio.sleep(0)
        reference = weakref.ref(body)
        del body
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        del waiting
        await asyncio.sleep(0)  # the loop lets go of the task
        gc.collect()
        assert reference() is None
        let_go.set()
        await asyncio.gather(*running)
        threads.close()

    asyncio.run(scenario())


# --------------------------------------------------------------------------- lines


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(create_app([served()], Settings(max_body=10_000))) as client:
        yield client


def answers_to(client: TestClient, body: bytes) -> list[dict[str, Any]]:
    reply = client.post("/v1/classify", content=body, headers=NDJSON)
    assert reply.status_code == 200, reply.text
    return [json.loads(line) for line in reply.text.splitlines()]


def test_a_line_that_is_too_long_fails_alone(client: TestClient) -> None:
    texts = [b'"a"\n', b'"' + b"b" * 3_000_000 + b'"\n', b'"c"\n', b'"' + b"d" * 20_000]
    answers = answers_to(client, json.dumps(HEAD).encode() + b"\n" + b"".join(texts))
    assert ["error" in answer for answer in answers] == [False, True, False, True]
    assert "A line exceeds 10,000 bytes" in answers[1]["error"]["message"]


def test_a_first_line_that_is_too_long_is_refused(client: TestClient) -> None:
    reply = client.post("/v1/classify", content=b"[" * 20_000 + b"\n", headers=NDJSON)
    assert reply.status_code == 413
    assert "A line exceeds 10,000 bytes" in reply.text


def test_blank_lines_are_passed_over_a_part_at_a_time(client: TestClient) -> None:
    blank = b"\n" * 100_000
    body = json.dumps(HEAD).encode() + b"\n" + blank + b'"a"\n' + blank + b'"b"\n' + blank
    assert [answer["label"] for answer in answers_to(client, body)] == ["x", "x"]
    lines = io.BytesIO(blank + b'"a"\n')
    assert classify._block(lines, 1024, 10_000, 1) == []
    assert lines.tell() == 10_000


def test_a_block_has_as_many_bytes_as_a_body_may() -> None:
    lines = io.BytesIO(b'"' + b"a" * 3_000 + b'"\n' * 1 + b'"bcdef"\n' * 3_000)
    sizes = []
    while (block := classify._block(lines, 1024, 4_000, 1)) is not None:
        sizes.append(len(block))
    assert sum(sizes) == 3_001
    assert max(sizes) <= 500
    lines.seek(0)
    first = classify._block(lines, 1024, 4_000, weight=10)
    assert first is not None
    assert len(first) == 1  # which stands ten times in its prompts


def test_what_is_taken_after_the_request_has_ended_is_given_back() -> None:
    """A thread may still parse the body of a client that has left."""
    budget = Budget(100)
    share = Share(budget)
    share.take(60)
    share.close()
    with pytest.raises(RuntimeError, match="has ended"):
        share.take(60)
    with pytest.raises(RuntimeError, match="has ended"):
        asyncio.run(share.wait_for(60))
    share.close()
    assert budget.taken == 0


LINES = json.dumps(HEAD | {"model": "a"}).encode() + b"\n" + b'"text"\n' * 3_000
CALL = {"model": "a", "arguments": {"prompts": ["text"] * 3_000}, "options": {"labels": ["x", "y"]}}


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        ("/v1/classify", b"application/x-ndjson", LINES),
        ("/v1/core/classify", b"application/json", json.dumps(CALL).encode()),
    ],
)
def test_a_slow_reader_keeps_no_model(path: str, kind: bytes, body: bytes) -> None:
    """What is computed waits for its reader; the model serves others, or makes room for them."""

    async def scenario() -> None:
        offered = [Loadable(name, served, size_bytes=10) for name in "ab"]
        app = create_app(offered, Settings(memory_limit=10))
        reads_on = asyncio.Event()
        slow = Sending(app, path, kind, reads_on)
        await slow.piece(body, last=True)
        while not slow.body:
            await asyncio.sleep(0.001)

        for model in "bab":
            other = Sending(app, "/v1/classify")
            question = {"texts": ["t"], "labels": ["x", "y"], "model": model}
            await other.piece(json.dumps(question).encode(), last=True)
            await asyncio.wait_for(other.task, 60)
            assert other.status == 200
        assert not slow.task.done()
        reads_on.set()
        await asyncio.wait_for(slow.task, 60)
        assert slow.body.count(b'"label":') == 3_000

    asyncio.run(scenario())
