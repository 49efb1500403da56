"""Connections that make no progress end, and so does the server, whatever they wait for."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from core.testing import FakeModel
from core_server import Served, Settings
from core_server import listening as _listen

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
Listening = Callable[..., AbstractContextManager[tuple[str, int]]]


def served() -> Served:
    even: Any = lambda prompt, labels: dict.fromkeys(labels, 0.5 / len(labels))  # noqa: E731
    return Served("m", FakeModel("Hi", labels=even))


def connected(address: tuple[str, int], received: int = 0) -> socket.socket:
    connection = socket.socket()
    if received:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received)
    connection.settimeout(60)
    connection.connect(address)
    return connection


def request(path: str, body: bytes, type_: str = "application/json", size: int = -1) -> bytes:
    size = len(body) if size < 0 else size
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {type_}\r\n"
    return f"{head}Content-Length: {size}\r\n\r\n".encode() + body


def many_lines() -> bytes:
    """Lines whose answers no socket's buffers hold."""
    head = {"labels": ["x", "y"], "template": "{text}", "show_prompts": True}
    rows = "".join(f'"{"abc" * 1_000} {n}"\n' for n in range(8_000))
    return request("/v1/classify", f"{json.dumps(head)}\n{rows}".encode(), "application/x-ndjson")


def received(connection: socket.socket) -> bytes:
    data = b""
    try:
        while piece := connection.recv(1 << 16):
            data += piece
    except ConnectionError:
        pass
    return data


def metrics(address: tuple[str, int]) -> str:
    with connected(address) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return received(connection).decode()


def until(address: tuple[str, int], line: str) -> None:
    for _ in range(6_000):
        if line in metrics(address):
            return
        threading.Event().wait(0.01)
    raise AssertionError(metrics(address))


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_listen, "STALLED", 0.3)
    monkeypatch.setattr(_listen, "LEAVING", 0.3)


@pytest.mark.usefixtures("_soon")
def test_who_reads_nothing_is_left(listening: Listening) -> None:
    """Long before the time for an answer is over."""
    with listening(served(), Settings(timeout=3_600)) as address:
        stalled = connected(address, 4_096)
        stalled.sendall(many_lines())
        until(address, "core_requests_begun_total 1.0")
        until(address, "core_requests 0.0")
        assert b'"label"' in received(stalled)  # what was on its way
        stalled.close()


@pytest.mark.usefixtures("_soon")
def test_who_reads_slowly_and_goes_on_gets_all(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_listen, "LEAST", 1)
    monkeypatch.setattr(_listen, "STALLED", 5.0)
    with listening(served()) as address:
        slow = connected(address, 1 << 16)
        slow.sendall(many_lines())
        data = bytearray()
        while not data.endswith(b"0\r\n\r\n"):
            if len(data) < 1 << 18:
                threading.Event().wait(0.01)
            piece = slow.recv(1 << 14 if len(data) < 1 << 18 else 1 << 20)
            assert piece, len(data)
            data += piece
        assert data.count(b'"label"') == 8_000
        slow.close()


def test_one_connection_too_many_is_turned_away(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening(served(), most=3) as address:
        others = [connected(address) for _ in range(3)]
        for connection in others:  # which are there when they are answered
            connection.sendall(HEALTH)
            assert connection.recv(4_096).startswith(b"HTTP/1.1 200")
        with connected(address) as late:
            reply = received(late)
        assert reply.startswith(b"HTTP/1.1 503")
        assert b"Retry-After: 1" in reply
        others.pop().close()
        for _ in range(600):
            with connected(address) as again:
                again.sendall(
                    b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                )
                if received(again).startswith(b"HTTP/1.1 200"):
                    break
        else:
            raise AssertionError
        for connection in others:
            connection.close()


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize("type_", ["application/json", "application/x-ndjson"])
def test_the_end_waits_for_no_body_that_never_comes(listening: Listening, type_: str) -> None:
    settings = Settings(body_timeout=3_600, timeout=3_600)
    with listening(served(), settings) as address:
        half = connected(address)
        half.sendall(request("/v1/classify", b'{"texts": [', type_, size=1_000))
        idle = connected(address)
        until(address, "core_requests 1.0")
    # The server has ended: the fixture waits for its thread.
    assert received(half) == b""
    assert received(idle) == b""
    for connection in (half, idle):
        connection.close()


@pytest.mark.usefixtures("_soon")
def test_the_end_waits_for_what_has_come_whole(listening: Listening) -> None:
    going, let_go = threading.Event(), threading.Event()

    def waiting(prompt: str, labels: Any) -> Any:
        going.set()
        assert let_go.wait(60)
        return dict.fromkeys(labels, 0.5 / len(labels))

    body = json.dumps({"texts": ["a"], "labels": ["x", "y"]}).encode()
    with listening(Served("m", FakeModel("Hi", labels=waiting))) as address:
        whole = connected(address)
        whole.sendall(request("/v1/classify", body))
        assert going.wait(60)
        threading.Timer(1.0, let_go.set).start()  # after LEAVING
    assert b'"label":"x"' in received(whole)
    whole.close()


def test_a_refused_body_is_read_no_further_than_its_connection(listening: Listening) -> None:
    """Its place is free at once, and the connection serves the next request."""
    with listening(served(), Settings(max_body=1_000)) as address, connected(address) as client:
        client.sendall(request("/v1/classify", b"a" * 500_000))
        assert client.recv(65_536).startswith(b"HTTP/1.1 413")
        until(address, "core_requests 0.0")


def test_resets_give_all_back(listening: Listening) -> None:
    with listening(served()) as address:
        for _ in range(20):
            connection = connected(address, 4_096)
            connection.sendall(many_lines()[:1_000_000])
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.close()
        until(address, "core_requests 0.0")
        text = metrics(address)
        assert "core_memory_bytes 0.0" in text
        assert "core_spooled_bytes 0.0" in text
