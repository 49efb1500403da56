"""How the server listens: uvicorn, with an end to connections that ask for nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_TIMEOUT = 30.0  # seconds, between a connection or an answer and all of a request's head


class Connection(H11Protocol):
    """uvicorn's, which would wait forever for the head of a request that has begun or has not."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        """Begin to wait for the next one."""
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(HEAD_TIMEOUT, self._look)

    def _look(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            self.transport.close()


def configured(app: ASGIApp, **options: Any) -> uvicorn.Config:
    """uvicorn's configuration of a server; ``options`` are those of `uvicorn.Config`."""
    return uvicorn.Config(app, http=Connection, ws="none", access_log=False, **options)
