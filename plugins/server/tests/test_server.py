"""The server with a scripted model, through an HTTP client."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Unpack

import click
import pytest
from starlette.testclient import TestClient

from core.errors import LabelError
from core.options import ClassifyOptions, GenerateConfig
from core.protocols import Capability, TokenStream
from core.testing import FakeModel
from core.types import ClassifyResult, GenerateMetrics
from core_server import Served, Settings, create_app
from core_server.running import _key_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Listening = Callable[..., AbstractContextManager[tuple[str, int]]]
CHAT = {"model": "fake", "messages": [{"role": "user", "content": "Hello"}]}


def probabilities(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    """More for a label that the text names."""
    text = prompt.rpartition("\n")[2]
    return {label: 0.6 if label.strip() in text else 0.3 / len(labels) for label in labels}


def question(*options: str) -> dict[str, Any]:
    criteria = dict.fromkeys(options)
    return {"type": "choice", "instructions": "Which one?", "criteria": criteria}


def question_body(state: str, *options: str) -> dict[str, Any]:
    return {"model": "jev-latest", "state": state, "questions": {"q": question(*options)}}


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(create_app([Served("fake", FakeModel("Good day", labels=probabilities))])) as c:
        yield c


# --------------------------------------------------------------------------- decisions


def test_a_choice_over_system_one_is_what_the_model_says(client: TestClient) -> None:
    reply = client.post("/v1/systemone", json=question_body("a tiger sleeps", "lion", "tiger"))
    assert reply.status_code == 200
    answer = reply.json()["answers"]["q"]
    assert answer["choice"] == "tiger"
    assert answer["probabilities"]["tiger"] == pytest.approx(0.6 / 0.75)
    assert answer["x_level"] == "raw"
    assert reply.json()["usage"]["input_tokens"] > 0


def test_the_order_of_the_options_changes_nothing(client: TestClient) -> None:
    answers = [
        client.post("/v1/systemone", json=question_body("a tiger", *order)).json()["answers"]["q"]
        for order in (("lion", "tiger", "bear"), ("bear", "lion", "tiger"))
    ]
    assert answers[0]["probabilities"] == answers[1]["probabilities"]


def test_questions_with_different_labels_are_answered_in_their_order(client: TestClient) -> None:
    body = question_body("a tiger on a boat", "lion", "tiger")
    body["questions"] = {
        "one": question("lion", "tiger"),
        "two": question("car", "boat"),
        "three": question("lion", "tiger"),
    }
    answers = client.post("/v1/systemone", json=body).json()["answers"]
    assert [*answers] == ["one", "two", "three"]
    assert [answer["choice"] for answer in answers.values()] == ["tiger", "boat", "tiger"]


def test_a_decision_of_openai(client: TestClient) -> None:
    choices = [{"value": "lion"}, {"value": "tiger"}]
    question = {"type": "choice", "name": "n", "instructions": "Which?", "choices": choices}
    body = {"model": "fake", "input": "a tiger sleeps", "questions": [question]}
    [answer] = client.post("/v1/decisions", json=body).json()["answers"]
    assert answer["name"] == "n"
    assert answer["choice"] == "tiger"


def test_a_model_without_labels_is_refused_by_name() -> None:
    model = FakeModel("x")
    served = Served("fake", model, backend="fake", capabilities=model.capabilities)
    with TestClient(create_app([served])) as client:
        reply = client.post("/v1/systemone", json=question_body("a", "b", "c"))
    assert reply.status_code == 422
    assert "does not support decisions" in reply.text


# --------------------------------------------------------------------------- one engine


class Held(FakeModel):
    """A model whose first call waits until it is let go, and that notes the sizes of its calls."""

    def __init__(self) -> None:
        super().__init__("x", labels=probabilities)
        self.begun, self.let_go = threading.Event(), threading.Event()
        self.sizes: list[int] = []
        self.cancels: list[object] = []

    def classify(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        self.sizes.append(len(prompts))
        self.cancels.append(config and config.cancel)
        self.begun.set()
        assert self.let_go.wait(30)
        return super().classify(prompts, config, **options)


def test_what_comes_while_a_call_runs_is_asked_in_one() -> None:
    model = Held()
    served = Served("fake", model)
    with TestClient(create_app([served])) as client, ThreadPoolExecutor(12) as pool:

        def ask(animal: str) -> str:
            reply = client.post("/v1/systemone", json=question_body(f"a {animal}", "lion", "tiger"))
            return str(reply.json()["answers"]["q"]["choice"])

        first = pool.submit(ask, "lion")
        assert model.begun.wait(30)
        others = [pool.submit(ask, animal) for animal in ["tiger", "lion"] * 4]
        while len(served.questions._entries) < 8:
            threading.Event().wait(0.001)
        model.let_go.set()
        assert [first.result(), *(other.result() for other in others)] == [
            "lion",
            *["tiger", "lion"] * 4,
        ]
    assert model.sizes == [1, 8]
    assert [served.questions.counted[f"decision_{name}"] for name in ("calls", "questions")] == [
        2,
        9,
    ]


def test_turns_of_a_long_request_and_of_those_behind_it() -> None:
    """One with 300 questions, and 300 with one: each call has 256, and nobody is passed over."""
    model = Held()
    served = Served("fake", model)
    prompts = [f"a {n}" for n in range(300)]

    async def ask_all() -> list[list[ClassifyResult]]:
        queue, labels = served.questions, ("lion", "tiger")
        first = asyncio.create_task(queue.ask(["held"], labels))
        while not model.begun.is_set():
            await asyncio.sleep(0.001)
        others = [asyncio.create_task(queue.ask(prompts, labels))]
        others += [asyncio.create_task(queue.ask([prompt], labels)) for prompt in prompts]
        while len(queue._entries) < 301:
            await asyncio.sleep(0.001)
        model.let_go.set()
        return [answered.results for answered in await asyncio.gather(first, *others)]

    results_of_all = asyncio.run(ask_all())
    served.close()
    assert [len(results) for results in results_of_all] == [1, 300, *[1] * 300]
    assert model.sizes == [1, 256, 256, 88]
    assert all(result.label for results in results_of_all for result in results)


def test_what_no_future_takes_is_an_error_too() -> None:
    class Ends(FakeModel):
        def classify(self, *arguments: Any, **options: Any) -> list[ClassifyResult]:
            raise StopIteration

    with TestClient(create_app([Served("fake", Ends("x", labels=probabilities))])) as client:
        reply = client.post("/v1/systemone", json=question_body("a lion", "lion", "tiger"))
    assert reply.status_code == 500


def test_a_full_queue_says_when_to_come_again() -> None:
    model = Held()
    app = create_app([Served("fake", model)], Settings(max_queue=1))
    with TestClient(app) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(
            client.post, "/v1/systemone", json=question_body("a lion", "lion", "tiger")
        )
        assert model.begun.wait(30)
        refused = client.post("/v1/systemone", json=question_body("a lion", "lion", "tiger"))
        model.let_go.set()
        assert first.result().status_code == 200
        again = client.post("/v1/systemone", json=question_body("a lion", "lion", "tiger"))
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.json()["detail"]["error_type"] == "rate_limit_exceeded"
    assert again.status_code == 200


def test_a_timeout_is_told_and_cancels_what_nobody_waits_for() -> None:
    model = Held()
    with TestClient(create_app([Served("fake", model)], Settings(timeout=2.0))) as client:
        reply = client.post("/v1/systemone", json=question_body("a lion", "lion", "tiger"))
        [cancel] = model.cancels
        assert isinstance(cancel, threading.Event)
        assert cancel.is_set()
        model.let_go.set()
    assert reply.status_code == 504
    assert reply.json()["detail"]["error_type"] == "timeout"


def test_a_call_that_fails_is_an_error_of_its_own_requests_alone() -> None:
    errors = {"broken": RuntimeError("a path of this machine")}

    def classified(prompt: str) -> Exception | None:
        return next((error for text, error in errors.items() if text in prompt), None)

    model = FakeModel("x", labels=probabilities, errors=classified)
    with TestClient(create_app([Served("fake", model)])) as client:
        failed = client.post("/v1/systemone", json=question_body("broken", "lion", "tiger"))
        good = client.post("/v1/systemone", json=question_body("a lion", "lion", "tiger"))
    assert failed.status_code == 500
    assert "a path of this machine" not in failed.text
    assert good.status_code == 200


def test_labels_that_the_model_refuses_are_the_requests_fault() -> None:
    class Refuses(FakeModel):
        def classify(self, *arguments: Any, **options: Any) -> list[ClassifyResult]:
            raise LabelError("Two labels have the same tokens.")

    with TestClient(create_app([Served("fake", Refuses("x", labels=probabilities))])) as client:
        reply = client.post("/v1/systemone", json=question_body("a lion", "lion", "tiger"))
    assert reply.status_code == 422
    assert "same tokens" in reply.text


# --------------------------------------------------------------------------- texts


def test_a_chat_is_answered_whole(client: TestClient) -> None:
    body = client.post("/v1/chat/completions", json=CHAT | {"logprobs": True}).json()
    [choice] = body["choices"]
    assert body["object"] == "chat.completion"
    assert choice["message"] == {"role": "assistant", "content": "Good day", "refusal": None}
    assert choice["finish_reason"] == "stop"
    assert len(choice["logprobs"]["content"]) == len("Good day")
    assert body["usage"]["completion_tokens"] == len("Good day")


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_a_stream_says_the_same_as_a_whole_answer(client: TestClient, kind: str) -> None:
    path = "/v1/chat/completions" if kind == "chat" else "/v1/completions"
    body = CHAT if kind == "chat" else {"model": "fake", "prompt": "Hello"}
    whole = client.post(path, json=body | {"max_tokens": 5}).json()
    options = {"max_tokens": 5, "stream": True, "stream_options": {"include_usage": True}}
    reply = client.post(path, json=body | options)
    assert reply.headers["content-type"].startswith("text/event-stream")

    *events, last, end = reply.text.split("\n\n")
    assert (last, end) == ("data: [DONE]", "")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert len({chunk["id"] for chunk in chunks}) == 1
    choices = [chunk["choices"][0] for chunk in chunks[:-1]]
    texts = [c["delta"].get("content", "") if kind == "chat" else c["text"] for c in choices]
    answer = whole["choices"][0]
    assert "".join(texts) == (answer["message"]["content"] if kind == "chat" else answer["text"])
    assert [c["finish_reason"] for c in choices if c["finish_reason"]] == ["length"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole["usage"]


def test_what_is_wrong_with_a_stream_has_a_status() -> None:
    model = FakeModel("x" * 50, context_length=16)
    with TestClient(create_app([Served("fake", model)])) as client:
        body = {"model": "fake", "prompt": "long " * 20, "stream": True}
        reply = client.post("/v1/completions", json=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "context_length_exceeded"


def test_an_error_behind_the_first_token_is_an_event() -> None:
    class Breaks(FakeModel):
        def generate(self, prompt: str, config: GenerateConfig | None = None, /, **_: Any) -> Any:
            class Stream:
                finish_reason = None

                def __iter__(self) -> Iterator[Any]:
                    yield from FakeModel("ab").generate("x")
                    raise RuntimeError("secret")

                def close(self) -> None: ...

            return Stream()

    with TestClient(create_app([Served("fake", Breaks("x"))])) as client:
        body = {"model": "fake", "prompt": "p", "stream": True}
        reply = client.post("/v1/completions", json=body)
        whole = client.post("/v1/completions", json=body | {"stream": False})
    last = json.loads(reply.text.strip().split("\n\n")[-1].removeprefix("data: "))
    assert last["error"]["code"] == "internal_error"
    assert whole.status_code == 500
    assert "secret" not in reply.text + whole.text


def test_a_stream_holds_its_place_until_it_is_sent() -> None:
    going, let_go = threading.Event(), threading.Event()

    class Slow(FakeModel):
        def generate(self, prompt: str, config: GenerateConfig | None = None, /, **_: Any) -> Any:
            class Stream:
                finish_reason = "stop"
                metrics = GenerateMetrics()

                def __iter__(self) -> Iterator[Any]:
                    yield from FakeModel("a").generate("x")
                    going.set()
                    assert let_go.wait(30)

                def close(self) -> None: ...

            return Stream()

    app = create_app([Served("fake", Slow("x"))], Settings(max_queue=1))
    with TestClient(app) as client, ThreadPoolExecutor(1) as pool:
        body = {"model": "fake", "prompt": "p", "stream": True}
        first = pool.submit(client.post, "/v1/completions", json=body)
        assert going.wait(30)
        refused = client.post("/v1/completions", json=body)
        let_go.set()
        assert first.result().text.endswith("data: [DONE]\n\n")
        again = client.post("/v1/completions", json=body)
    assert (refused.status_code, again.status_code) == (429, 200)


def test_a_chat_needs_no_tokenizer_to_be_shown() -> None:
    """As with mlx_lm, whose models chat and show none."""

    class Closed(FakeModel):
        encode = decode = render_chat = submit = None  # type: ignore[assignment]

    served = Served("fake", Closed("Good day"), capabilities={Capability.CHAT})
    with TestClient(create_app([served])) as client:
        [choice] = client.post("/v1/chat/completions", json=CHAT).json()["choices"]
    assert choice["message"]["content"] == "Good day"


def test_the_timeout_is_the_generations_too() -> None:
    seen: list[float | None] = []

    class Notes(FakeModel):
        def generate(
            self, prompt: str, config: GenerateConfig | None = None, /, **_: Any
        ) -> TokenStream:
            seen.append(None if config is None else config.timeout)
            return super().generate(prompt, config)

    app = create_app([Served("fake", Notes("x"))], Settings(timeout=12.5))
    with TestClient(app) as client:
        client.post("/v1/completions", json={"model": "fake", "prompt": "p", "stream": True})
    assert seen == [12.5]


# --------------------------------------------------------------------------- clients that leave


def sent(address: tuple[str, int], path: str, body: object) -> socket.socket:
    connection = socket.create_connection(address)
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection


def test_a_client_that_leaves_takes_its_question_back(listening: Listening) -> None:
    model = Held()
    served = Served("fake", model)
    with listening(served) as address:
        connection = sent(address, "/v1/systemone", question_body("a lion", "lion", "tiger"))
        assert model.begun.wait(30)
        other = sent(address, "/v1/systemone", question_body("a bear", "bear", "tiger"))
        while not served.questions._entries:
            threading.Event().wait(0.001)
        other.close()  # before it was asked
        connection.close()  # while it is asked
        [cancel] = model.cancels
        assert isinstance(cancel, threading.Event)
        assert cancel.wait(30)
        while served.questions._entries:
            threading.Event().wait(0.001)
        model.let_go.set()
    assert model.sizes == [1]


def test_a_client_that_leaves_a_stream_stops_it(listening: Listening) -> None:
    stopped = threading.Event()

    class Endless(FakeModel):
        def generate(self, prompt: str, config: GenerateConfig | None = None, /, **_: Any) -> Any:
            assert config is not None
            assert config.cancel is not None
            cancel = config.cancel

            class Stream:
                finish_reason = "stop"
                metrics = GenerateMetrics()

                def __iter__(self) -> Iterator[Any]:
                    while not cancel.is_set():
                        yield from FakeModel("a").generate("x")

                def close(self) -> None:
                    stopped.set()

            return Stream()

    with listening(Served("fake", Endless("x"))) as address:
        body = {"model": "fake", "prompt": "p", "stream": True}
        connection = sent(address, "/v1/completions", body)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        assert not stopped.is_set()
        connection.close()
        assert stopped.wait(30)


# --------------------------------------------------------------------------- the door


@pytest.mark.parametrize(("method", "path"), [("GET", "/nothing"), ("GET", "/v1/systemone")])
def test_a_route_that_is_none_is_told_in_json(client: TestClient, method: str, path: str) -> None:
    reply = client.request(method, path)
    assert reply.status_code in (404, 405)
    assert path in reply.json()["error"]["message"]


def test_models_are_listed_for_both_clients(client: TestClient) -> None:
    body = client.get("/v1/models").json()
    assert [model["id"] for model in body["data"]] == ["fake"]
    assert [model["name"] for model in body["models"]] == ["fake"]


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/systemone", 404), ("/v1/chat/completions", 404)]
)
def test_a_model_that_is_not_served(client: TestClient, path: str, status: int) -> None:
    body = question_body("a", "b", "c") if path == "/v1/systemone" else CHAT
    reply = client.post(path, json=body | {"model": "other"})
    assert reply.status_code == status
    assert "other" in reply.text


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 5000, b"null", b'{"a": 1e999}'])
def test_what_is_no_request_is_refused_as_its_wire_does(client: TestClient, body: bytes) -> None:
    one = client.post("/v1/systemone", content=body)
    other = client.post("/v1/chat/completions", content=body)
    assert (one.status_code, other.status_code) == (422, 400)
    assert one.json()["detail"][0]["msg"]
    assert other.json()["error"]["message"]


def test_the_key_is_asked_for_everywhere_but_at_the_pulse() -> None:
    app = create_app([Served("fake", FakeModel("x"))], Settings(api_key="secret"))
    with TestClient(app) as client:
        for given in ({}, {"authorization": "Bearer wrong"}, {"authorization": "secret"}):
            reply = client.get("/v1/models", headers=given)
            assert (reply.status_code, "secret" in reply.text) == (401, False)
        assert client.get("/v1/models", headers={"authorization": "Bearer secret"}).is_success
        assert client.get("/health").is_success
        refused = client.post("/v1/systemone", content=b"{}").json()
        assert refused["detail"]["error_type"] == "authentication_error"


def test_a_foreign_name_is_refused() -> None:
    settings = Settings(hosts=frozenset({"localhost", "::1"}))
    with TestClient(create_app([Served("fake", FakeModel("x"))], settings)) as client:
        assert client.get("/v1/models", headers={"host": "localhost:8000"}).is_success
        assert client.get("/v1/models", headers={"host": "[::1]:8000"}).is_success
        for host in ("evil.example", "[localhost].evil.com", "[::1]evil", "localhost:80.evil", ""):
            reply = client.get("/v1/models", headers={"host": host})
            assert reply.status_code == 403, host


def test_a_body_beyond_the_limit() -> None:
    app = create_app([Served("fake", FakeModel("x"))], Settings(max_body=100))
    with TestClient(app) as client:
        reply = client.post("/v1/chat/completions", content=b" " * 101)
    assert reply.status_code == 413


def test_a_body_that_does_not_come(listening: Listening) -> None:
    served = Served("fake", FakeModel("x"))
    with listening(served, Settings(body_timeout=0.05)) as address:
        connection = socket.create_connection(address)
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
        connection.sendall(head)
        assert connection.recv(4096).startswith(b"HTTP/1.1 408")
        connection.close()


@pytest.mark.parametrize("head", [b"", b"POST /v1/completions HTTP/1.1\r\nHost: loc"])
def test_a_connection_that_asks_for_nothing_ends(
    listening: Listening, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr("core_server.listening.HEAD_TIMEOUT", 0.05)
    with listening(Served("fake", FakeModel("x"))) as address:
        with socket.create_connection(address) as connection:
            connection.sendall(head)
            assert connection.recv(4096) == b""

        # One request was answered, and the next does not come.
        with sent(address, "/v1/completions", {"model": "fake", "prompt": "p"}) as connection:
            connection.settimeout(60)
            received = b""
            while more := connection.recv(4096):
                received += more
                connection.sendall(head)
                head = b""
            assert received.startswith(b"HTTP/1.1 200")


def encoded(name: str, body: bytes) -> bytes:
    return gzip.compress(body) if name == "gzip" else zstd.compress(body)


@pytest.mark.parametrize(("window_log", "status"), [(23, 200), (24, 400), (27, 400)])
def test_a_zstd_window_is_bounded(client: TestClient, window_log: int, status: int) -> None:
    """A window is memory for as long as its body takes to come, and no allowance counts it."""
    packed = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: window_log})
    body = json.dumps({"texts": ["a lion"], "labels": ["lion", "tiger"]}).encode()
    content = packed.compress(body) + packed.flush()  # streamed: its frame states the window
    reply = client.post("/v1/classify", content=content, headers={"content-encoding": "zstd"})
    assert reply.status_code == status, reply.text


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_a_body_that_is_compressed(name: str) -> None:
    app = create_app([Served("fake", FakeModel("x"))], Settings(max_body=2000))

    with TestClient(app) as compressing:

        def post(body: bytes, encoding: str = name) -> int:
            headers = {"content-encoding": encoding}
            reply = compressing.post("/v1/chat/completions", content=body, headers=headers)
            return int(reply.status_code)

        whole = encoded(name, json.dumps(CHAT).encode())
        assert post(whole) == 200
        assert post(whole[:-5]) == 400
        assert post(b"", name) == 400
        assert post(whole[:10] + b"x" * 30) == 400
        assert post(encoded(name, b" " * 100_000_000)) == 413  # little that becomes much
        assert post(whole, "br") == 415


ROWS = [b'{"labels": ["x", "y"]}\n"one"\n', b"", b'"two"\n"thr', b'ee"\n' + b'"four"\n' * 9000]
SKIPPED = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"any"  # a frame without content


@pytest.mark.parametrize("name", ["gzip", "zstd"])
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_body_of_several_members_is_read_whole(name: str, size: int) -> None:
    """As ``cat a.gz b.gz``, bgzip and pzstd make it, wherever the connection cuts it."""
    parts = [encoded(name, part) for part in ROWS]
    body = b"".join([*parts[:1], *([SKIPPED] if name == "zstd" else []), *parts[1:]])
    headers = {"content-type": "application/x-ndjson", "content-encoding": name}

    model = FakeModel(labels=lambda prompt, labels: {"x": 0.6, "y": 0.4})
    with TestClient(create_app([Served("m", model)])) as client:

        def post(data: bytes) -> tuple[int, int]:
            pieces = (data[at : at + size] for at in range(0, len(data), size))
            reply = client.post("/v1/classify", content=pieces, headers=headers)
            return reply.status_code, len(reply.text.splitlines())

        assert post(body) == (200, 9003)
        assert post(body + parts[1][:-3])[0] == 400
        assert post(body + b"rubbish")[0] == 400


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_members_that_hold_nothing_are_counted(name: str) -> None:
    app = create_app([Served("fake", FakeModel("x"))], Settings(max_body=2000))
    body = encoded(name, b"") * 20_000
    with TestClient(app) as client:
        headers = {"content-encoding": name}
        reply = client.post("/v1/chat/completions", content=body, headers=headers)
    assert reply.status_code == 413


def test_a_key_beyond_ascii() -> None:
    app = create_app([Served("fake", FakeModel("x"))], Settings(api_key="clé"))
    with TestClient(app) as client:
        right = {b"authorization": "Bearer clé".encode()}
        assert client.get("/v1/models", headers=right).status_code == 200
        assert client.get("/v1/models", headers={"authorization": "Bearer cle"}).status_code == 401


def test_capabilities_left_out_are_all() -> None:
    assert Served("fake", FakeModel("x")).capabilities == frozenset(Capability)


def test_a_key_is_in_no_repr_and_comes_from_a_file(tmp_path: Path) -> None:
    settings = Settings(api_key="sk-MARKED\n")
    assert "sk-MARKED" not in repr(settings) + repr(asdict(settings))
    app = create_app([Served("fake", FakeModel("x"))], settings)
    with TestClient(app) as client:
        for key, status in (("sk-MARKED", 200), ("sk-OTHER", 401)):
            headers = {"authorization": f"Bearer {key}"}
            assert client.get("/v1/models", headers=headers).status_code == status

    file = tmp_path / "key"
    file.write_text("sk-MARKED\r\n")
    assert _key_of(str(file), None) == "sk-MARKED"
    with pytest.raises(click.UsageError, match="cannot be combined with"):
        _key_of(str(file), "sk-MARKED")
    for content in (b"", b"\n", b"two\nsk-MARKED", b"\xffsk-MARKED", b"sk-MARKED" * 1000):
        file.write_bytes(content)
        with pytest.raises(click.UsageError, match="--api-key-file") as refused:
            _key_of(str(file), None)
        assert "sk-MARKED" not in str(refused.value)
    with pytest.raises(click.UsageError, match="Cannot read --api-key-file"):
        _key_of(str(tmp_path / "none"), None)
