"""Servers that die, fall silent, speak nonsense or send elsewhere: typed errors, then a call."""

from __future__ import annotations

import json
import math
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import core
from core.errors import (
    BackendProcessError,
    CoreError,
    ModelNotFoundError,
    PromptTooLongError,
    RequestError,
)
from core.protocols import Capability
from core.testing import FakeModel
from core_remote.failures import ServerBusyError, ServerError
from core_wires.contract import VERSION, Description
from core_wires.plain import plain

pytestmark = pytest.mark.load  # a busy machine can make it fail

_INFO = FakeModel("x").info
_HEAD = "HTTP/1.1 {status}\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n{more}\r\n"
_TOKEN = b'{"token":{"id":1,"text":"a"}}\n'
_END = b'{"end":{"finish_reason":"length","metrics":{"prompt_tokens":1}}}\n'
Say = Callable[[socket.socket], None]


def _described() -> bytes:
    offered = ("generate", "chat", "classify", "batch_generate", "seed", "batch_streaming")
    told = Description("wild", VERSION, "wild", _INFO, offered)
    return json.dumps({"value": plain(told)}).encode()


def _sent(connection: socket.socket, body: bytes, status: str = "200 OK", more: str = "") -> None:
    connection.sendall(_HEAD.format(status=status, more=more).encode() + body)


@pytest.fixture
def model(wild: Any) -> Any:
    """A model of a server that speaks core's wire, until a test has it do otherwise."""

    def answer(head: str, connection: socket.socket) -> None:
        if "/describe" in head:
            _sent(connection, _described())
        else:
            wild.say(connection)

    wild.answer = answer
    wild.say = lambda connection: _sent(connection, _TOKEN + _END)
    with core.load_model(wild.url) as model:
        yield model


def _half_a_line(connection: socket.socket) -> None:
    _sent(connection, _TOKEN + b'{"token":{"id":1,"te')


def _garbage(connection: socket.socket) -> None:
    connection.sendall(b"\x00\xff\x17garbage that is no HTTP\r\n\r\n" * 50)


def _no_json(connection: socket.socket) -> None:
    _sent(connection, _TOKEN + b"\xff\xfe{{{\n")


def _nested(connection: socket.socket) -> None:
    _sent(connection, b"[" * 100_000 + b"\n")


def _wrong_types(connection: socket.socket) -> None:
    _sent(connection, b'{"token":{"id":"one","text":7}}\n')


def _no_event(connection: socket.socket) -> None:
    _sent(connection, b'{"something":1}\n')


def _dies_before_its_headers(connection: socket.socket) -> None:
    connection.close()


def _dies_in_mid_stream(connection: socket.socket) -> None:
    _sent(connection, _TOKEN)


def _dies_in_a_chunk(connection: socket.socket) -> None:
    _sent(connection, b"1e\r\n" + _TOKEN[:9], more="Transfer-Encoding: chunked\r\n")


def _slow_loris(connection: socket.socket) -> None:
    _sent(connection, b"")
    stop = threading.Event()
    try:
        while not stop.wait(0.05):
            connection.sendall(b" ")
    except OSError:
        return


def _says_nothing(connection: socket.socket) -> None:
    connection.recv(1)  # until the client leaves


FAULTS = [
    _half_a_line,
    _garbage,
    _no_json,
    _nested,
    _wrong_types,
    _no_event,
    _dies_before_its_headers,
    _dies_in_mid_stream,
    _dies_in_a_chunk,
]
_SILENCE = 3.0  # seconds: longer than any machine takes for a line that is whole


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_typed_and_the_next_call_works(fault: Say, model: Any, wild: Any) -> None:
    sound = wild.say
    for ask in (
        lambda: model.generate("a").text(),
        lambda: model.classify(["a"]),
        lambda: list(model.batch_stream(["a"])),
    ):
        wild.say = fault
        with pytest.raises(BackendProcessError) as raised:
            ask()
        assert wild.url in str(raised.value)
        wild.say = sound
        assert model.generate("a").text() == "a"


@pytest.mark.parametrize("fault", [_slow_loris, _says_nothing])
def test_who_sends_no_whole_line_is_left(fault: Say, model: Any, wild: Any) -> None:
    sound = wild.say
    with core.load_model(wild.url, options={"silence_timeout": _SILENCE}) as other:
        wild.say = fault
        with pytest.raises(BackendProcessError, match="no complete line for 3 s"):
            other.generate("a").text()
        wild.say = sound
        assert other.generate("a").text() == "a"


def test_too_few_results_are_no_answer(model: Any, wild: Any) -> None:
    wild.say = lambda connection: _sent(connection, b'{"result":{}}\n' + _END)
    with pytest.raises(BackendProcessError, match="1 results for 2 rows"):
        model.classify(["a", "b"])


def test_a_line_without_an_end_is_bounded(
    model: Any, wild: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from core_remote import connection as way

    monkeypatch.setattr(way, "MAX_LINE", 2**16)

    def endless(connection: socket.socket) -> None:
        _sent(connection, b"")
        try:
            while True:
                connection.sendall(b"x" * 65536)
        except OSError:
            return

    wild.say = endless
    with pytest.raises(BackendProcessError, match="a line of over"):
        model.generate("a").text()


@pytest.mark.parametrize(
    ("status", "more", "kind"),
    [
        ("429 Too Many Requests", "Retry-After: 7\r\n", ServerBusyError),
        ("503 Service Unavailable", "", ServerBusyError),
        ("500 Internal Server Error", "", ServerError),
        ("404 Not Found", "", ServerError),
        ("400 Bad Request", "", RequestError),
        ("401 Unauthorized", "", core.ModelAccessError),
        ("302 Found", "Location: http://elsewhere.example/steal?key=1\r\n", ServerError),
    ],
)
def test_a_refusal_is_typed(
    status: str, more: str, kind: type[CoreError], model: Any, wild: Any
) -> None:
    sound = wild.say
    wild.say = lambda connection: _sent(connection, b'{"error":{"message":"no"}}', status, more)
    with pytest.raises(kind) as raised:
        model.generate("a").text()
    if kind is ServerBusyError:
        assert raised.value.retry_after == (7.0 if more else None)  # type: ignore[attr-defined]
    wild.say = sound
    assert model.generate("a").text() == "a"


def test_no_key_goes_to_another_host(wild: Any) -> None:
    """Neither a redirect at the load nor one of a call is followed."""
    other = type(wild)()
    try:
        moved = f"Location: {other.url}/v1/core/describe\r\n"
        wild.answer = lambda head, connection: _sent(
            connection, b"", "307 Temporary Redirect", moved
        )
        with pytest.raises(ServerError, match="Redirects are not followed") as raised:
            core.load_model(wild.url, options={"api_key": "a-secret"})
        assert "a-secret" not in str(raised.value)
        assert "Bearer a-secret" in wild.requests[0]
        assert other.requests == []
    finally:
        other.close()


def test_neither_proxies_nor_netrc_are_taken_from_the_environment(
    wild: Any, monkeypatch: pytest.MonkeyPatch, model: Any
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with core.load_model(wild.url) as again:
        assert again.generate("a").text() == "a"


def test_nobody_at_an_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ModelNotFoundError, match="cannot be reached"):
        core.load_model(f"http://127.0.0.1:{port}")
    for wrong in ("http://", "http://[", "http://host:port", "http://h:1?x=1", "grpc://h:1/m"):
        with pytest.raises(CoreError):
            core.load_model(wrong, backend="remote")
    assert not [each for each in threading.enumerate() if each.name == "core-remote"]


def test_typed_errors_of_the_server_come_back_as_they_were(model: Any, wild: Any) -> None:
    error = json.dumps({"error": plain(PromptTooLongError(9, 5))}).encode() + b"\n"
    wild.say = lambda connection: _sent(connection, error)
    with pytest.raises(PromptTooLongError) as raised:
        model.generate("a").text()
    assert (raised.value.length, raised.value.limit) == (9, 5)


# --------------------------------------------------------------------------- OpenAI's wire


def _piece(text: str, reason: str | None = None) -> bytes:
    choice = {"index": 0, "text": text, "delta": {"content": text}, "finish_reason": reason}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def _usage(tokens: int) -> bytes:
    usage = {"prompt_tokens": 3, "completion_tokens": tokens}
    return b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"


_SOUND = _piece("a ") + b": ping\n\n" + _piece("b") + _piece("", "length") + _usage(2)
_DONE = b"data: [DONE]\n\n"


@pytest.fixture
def speaker(wild: Any) -> Any:
    """A model of a server that knows OpenAI's routes alone, and no seeds."""

    def answer(head: str, connection: socket.socket) -> None:
        if "/v1/models" in head:
            _sent(connection, b'{"data":[{"id":"wild","max_model_len":64}]}')
        elif "/v1/completions" not in head and "/v1/chat/completions" not in head:
            _sent(connection, b'{"error":"no"}', "404 Not Found")
        elif '"stream":true' not in wild.requests[-1].replace(" ", ""):
            _sent(connection, b'{"choices":[{"text":"a"}],"usage":{"prompt_tokens":3}}')
        else:
            wild.say(connection)

    wild.answer = answer
    wild.say = lambda connection: _sent(connection, _SOUND + _DONE)
    with core.load_model(wild.url) as model:
        yield model


@pytest.mark.parametrize(
    ("suffix", "status", "error", "said"),
    [
        ("", "404 Not Found", BackendProcessError, "404: it died"),
        ("#other", "404 Not Found", ModelNotFoundError, "'other'.*it died"),
        ("#other", "500 Internal Server Error", BackendProcessError, "500: it died"),
    ],
)
def test_a_server_without_its_model_is_told_in_its_own_words(
    suffix: str, status: str, error: type[CoreError], said: str, wild: Any
) -> None:
    def answer(head: str, connection: socket.socket) -> None:
        listing = "/v1/models" in head or "/v1/" not in head or "/v1/core/" in head
        _sent(connection, b'{"error":"it died"}', "404 Not Found" if listing else status)

    wild.answer = answer
    with pytest.raises(error, match=said):
        core.load_model(wild.url + suffix)


def test_a_server_of_openais_wire_offers_what_it_shows(speaker: Any) -> None:
    assert {Capability.GENERATE, Capability.CHAT} <= speaker.declared()
    assert speaker.declared().isdisjoint({Capability.SEED, Capability.LOGPROBS})
    assert speaker.info.context_length == 64
    stream = speaker.generate("x", max_tokens=2)
    assert [token.text for token in stream] == ["a ", "b"]
    assert stream.finish_reason == "length"
    assert stream.metrics.prompt_tokens == 3
    assert speaker.generate("x", max_tokens=2, stop=" b").text() == "a"
    with pytest.raises(core.UnsupportedOptionError, match="top_k"):
        speaker.generate("x", top_k=3)
    with pytest.raises(core.UnsupportedOperationError):
        speaker.classify(["x"])


def _read(texts: Sequence[str], values: Sequence[float | None], *, chat: bool) -> bytes:
    """A piece with log-probabilities; Python's json writes NaN and Infinity as they are."""
    found: dict[str, Any] = {"tokens": texts, "token_logprobs": values}
    if chat:
        pairs = zip(texts, values, strict=True)
        found = {"content": [{"token": text, "logprob": value} for text, value in pairs]}
    text = "".join(texts)
    choice = {"index": 0, "text": text, "delta": {"content": text}, "logprobs": found}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -math.inf])
def test_a_log_probability_that_is_no_number_is_its_rows_error(
    bad: float | None, chat: bool, wild: Any
) -> None:
    sound = _read(["a"], [-0.5], chat=chat) + _piece("", "length") + _DONE

    def answer(head: str, connection: socket.socket) -> None:
        body = wild.requests[-1].replace(" ", "")
        if "/v1/models" in head:
            _sent(connection, b'{"data":[{"id":"wild","max_model_len":64}]}')
        elif "/v1/completions" not in head and "/v1/chat/completions" not in head:
            _sent(connection, b'{"error":"no"}', "404 Not Found")
        elif '"stream":true' not in body:
            _sent(connection, b'{"choices":[{"text":"a"}],"usage":{"prompt_tokens":3}}')
        elif "broken" in body:
            spoilt = _read(["a", "b"], [-0.5, bad], chat=chat)
            _sent(connection, _read(["c"], [-0.1], chat=chat) + spoilt + sound)
        else:
            _sent(connection, sound)

    wild.answer = answer
    with core.load_model(wild.url) as model:
        rows = model.batch_generate(["x", "broken", "y"], max_tokens=3, return_logprobs=True)
        assert [type(row.error) for row in rows] == [type(None), core.RequestError, type(None)]
        assert "log-probability" in str(rows[1].error)
        assert [(token.text, token.logprob) for token in rows[1].tokens] == [("c", -0.1)]
        assert [(token.text, token.logprob) for token in rows[2].tokens] == [("a", -0.5)]
        with pytest.raises(core.RequestError, match="log-probability"):
            model.chat([core.Message("user", "broken")], return_logprobs=True).text()
        assert model.generate("broken", max_tokens=3).text() == "caba"  # nobody asked for them


@pytest.mark.parametrize(
    "said",
    [
        _piece("a"),
        _piece("a") + b"data: {nonsense\n\n",
        b"data: [" + b"[" * 100_000 + b"\n\n",
        b'data: {"choices": 7}\n\n',
        b"no event at all\n",
        b"",
    ],
)
def test_broken_speech_is_typed_and_the_next_call_works(
    said: bytes, speaker: Any, wild: Any
) -> None:
    sound = wild.say
    wild.say = lambda connection: _sent(connection, said)
    with pytest.raises(BackendProcessError):
        speaker.generate("x", max_tokens=2).text()
    wild.say = sound
    assert speaker.generate("x", max_tokens=2).text() == "a b"
