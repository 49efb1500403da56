"""A server that listens, for tests which need a socket."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import uvicorn

from core_server import Served, Settings, create_app
from core_server.listening import configured

Listening = Callable[..., AbstractContextManager[tuple[str, int]]]


@contextmanager
def _listening(
    served: Served, settings: Settings | None = None, **options: Any
) -> Iterator[tuple[str, int]]:
    app = create_app([served], settings)
    server = uvicorn.Server(configured(app, port=0, log_level="warning", **options))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            threading.Event().wait(0.005)
        yield server.servers[0].sockets[0].getsockname()
    finally:
        server.should_exit = True
        thread.join(30)


@pytest.fixture
def listening() -> Listening:
    """A server of one model on a thread, by its address: ``with listening(served) as address``."""
    return _listening
