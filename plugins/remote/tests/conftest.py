"""Servers for tests: ours in front of a model, in a thread; and one that says what a test wrote."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import uvicorn

from core.protocols import Capability
from core_server import Served, Settings, create_app

Serving = Callable[..., str]
_PATIENCE = 60.0


@pytest.fixture
def port() -> int:
    """One that is free."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        found: int = free.getsockname()[1]
    return found


@pytest.fixture
def serving() -> Iterator[Serving]:
    """Serves models by name, and returns the server's address; ``settings`` are the server's."""
    with ExitStack() as stack:

        def serve(settings: Settings | None = None, **models: Any) -> str:
            return stack.enter_context(_served(settings, models))

        yield serve


@contextmanager
def _served(settings: Settings | None, models: dict[str, Any]) -> Iterator[str]:
    served = []
    for name, model in models.items():
        capabilities = getattr(model, "capabilities", frozenset(Capability))
        served.append(Served(name, model, backend="fake", capabilities=capabilities))
    config = uvicorn.Config(create_app(served, settings), port=0, log_level="error", lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + _PATIENCE
    while not server.started:
        assert time.monotonic() < end
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(_PATIENCE)


class WildServer:
    """Answers each connection with what ``answers`` says next: bytes to send, or None to close.

    ``requests`` are the heads of what came, as text.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.answer: Callable[[str, socket.socket], None] = lambda head, connection: None
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Take no more connections."""
        self.closed = True
        self._socket.close()

    def _run(self) -> None:
        while not self.closed:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(_PATIENCE)
            try:
                head, body = self._read(connection)
                self.requests.append(f"{head}\r\n\r\n{body}")
                self.answer(head, connection)
            except OSError:
                return

    def _read(self, connection: socket.socket) -> tuple[str, str]:
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                raise OSError
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        size = next(
            (
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            ),
            0,
        )
        while len(body) < size:
            body += connection.recv(65536)
        return head.decode("latin-1"), body.decode("utf-8", "replace")


@pytest.fixture
def wild() -> Iterator[WildServer]:
    """A server that says what a test has it say."""
    server = WildServer()
    yield server
    server.close()
