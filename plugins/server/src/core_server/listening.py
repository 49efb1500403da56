"""How the server listens: uvicorn, with an end to connections that make no progress."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_TIMEOUT = 30.0  # seconds, between a connection or an answer and all of a request's head
STALLED = 10.0  # seconds in which who is sent an answer has to take some of it
LEAST = 5_000  # bytes: a connection of 4 kbit/s
LEAVING = 5.0  # seconds that a body has to come in once the server ends
CONNECTIONS = 1024
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 43\r\n\r\n"
    b"All connections are in use. Try once again."
)


class Connection(H11Protocol):
    """uvicorn's, which would wait forever: for a head, for a reader, for a body when it ends."""

    def __init__(self, *arguments: Any, most: int = CONNECTIONS, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._most = most
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request; turn away who is one too many."""
        super().connection_made(transport)
        if len(self.connections) > self._most:
            transport.write(_FULL)
            self._close()
            return
        self._wait()

    def on_response_complete(self) -> None:
        """Begin to wait for the next one."""
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        for timer in (self._timer, self._sending):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Answer what has come whole; the rest of a body has some seconds to come."""
        super().shutdown()
        self.loop.call_later(LEAVING, self._leave)

    def _leave(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            self.transport.abort()

    # ------------------------------------------------------------------ who sends no head

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(HEAD_TIMEOUT, self._look)

    def _look(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            self._close()

    def _close(self) -> None:
        """Close it, also where it would wait for a reader of what was written last."""
        self.transport.close()
        self._timer = self.loop.call_later(STALLED, self.transport.abort)

    # ------------------------------------------------------------------ who reads nothing

    def pause_writing(self) -> None:
        """Watch whether what is written is taken, for as long as there is much of it."""
        super().pause_writing()
        self.loop.call_soon(self._watch)  # once all of this part is written

    def resume_writing(self) -> None:
        """Watch no longer."""
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        super().resume_writing()

    def _watch(self) -> None:
        if self.flow.write_paused:
            self._unsent = _unsent(self.transport)
            self._sending = self.loop.call_later(STALLED, self._look_at_sending)

    def _look_at_sending(self) -> None:
        if self._unsent - _unsent(self.transport) < LEAST:
            self.transport.abort()
        else:
            self._watch()


def _unsent(transport: asyncio.Transport) -> int:
    """Return the bytes that its reader has not taken, those of the system's buffer included.

    The system takes more only once a third of its megabytes is free, which a slow reader needs long
    for.
    """
    written = transport.get_write_buffer_size()
    try:
        import fcntl
        import termios

        held = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, b"\0" * 4)
    except (ImportError, OSError):  # a system that does not tell
        return written
    return written + int.from_bytes(held, sys.byteorder)


def connections(queue: int) -> int:
    """Return how many connections there may be beside a queue: a spool takes a descriptor, too."""
    wanted = queue + CONNECTIONS // 2
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return wanted
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, (soft - 128) // 2))


def configured(app: ASGIApp, *, most: int = CONNECTIONS, **options: Any) -> uvicorn.Config:
    """uvicorn's configuration of a server of ``most`` connections, and `uvicorn.Config`'s own."""
    protocol = cast("type[asyncio.Protocol]", partial(Connection, most=most))
    return uvicorn.Config(app, http=protocol, ws="none", access_log=False, **options)
