"""uvicorn's configuration, with timeouts for connections that make no progress."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_TIMEOUT = 30.0  # seconds, between a connection or an answer and all of a request's head
STALLED = 10.0  # seconds in which a client must read at least LEAST bytes of its answer
LEAST = 5_000  # bytes: a connection of 4 kbit/s
LEAVING = 5.0  # seconds for the rest of a body once the server shuts down
CONNECTIONS = 1024
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 41\r\n\r\n"
    b"All connections are in use. Retry in 1 s."
)


class Connection(H11Protocol):
    """An HTTP connection with timeouts: for a head, for a reader, for a body at shutdown.

    uvicorn's class would wait forever.
    """

    def __init__(self, *arguments: Any, most: int = CONNECTIONS, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._most = most
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout for the first request; refuse a connection beyond the limit."""
        super().connection_made(transport)
        if len(self.connections) > self._most:
            transport.write(_FULL)
            self._close()
            return
        self._wait()

    def on_response_complete(self) -> None:
        """Start the timeout for the next request."""
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        for timer in (self._timer, self._sending):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Answer complete requests; the rest of a body has `LEAVING` seconds to arrive."""
        super().shutdown()
        self.loop.call_later(LEAVING, self._leave)

    def _leave(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            self.transport.abort()

    # ------------------------------------------------------------------ missing heads

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(HEAD_TIMEOUT, self._look)

    def _look(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            self._close()

    def _close(self) -> None:
        """Close the connection, even if the client does not read the last answer."""
        self.transport.close()
        self._timer = self.loop.call_later(STALLED, self.transport.abort)

    # ------------------------------------------------------------------ stalled readers

    def pause_writing(self) -> None:
        """Check that the client reads, for as long as the write buffer is full."""
        super().pause_writing()
        self.loop.call_soon(self._watch)  # after all of this part is written

    def resume_writing(self) -> None:
        """Stop checking."""
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
    """Return the bytes that the client has not read, the system's buffer included.

    The system accepts more only once a third of its megabytes is free, which takes a slow reader
    long.
    """
    written = transport.get_write_buffer_size()
    try:
        import fcntl
        import termios

        queued = fcntl.ioctl(
            transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, b"\0" * 4
        )
    except (ImportError, OSError):  # a system that does not report it
        return written
    return written + int.from_bytes(queued, sys.byteorder)


def connections(queue: int) -> int:
    """Return the limit of connections for a queue: a spooled body takes a descriptor, too."""
    wanted = queue + CONNECTIONS // 2
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return wanted
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, (soft - 128) // 2))


def configured(app: ASGIApp, *, most: int = CONNECTIONS, **options: Any) -> uvicorn.Config:
    """Return uvicorn's configuration for ``most`` connections, with `uvicorn.Config`'s options."""
    protocol = cast("type[asyncio.Protocol]", partial(Connection, most=most))
    # The application has a log of its own, which knows the reasons of refusals.
    return uvicorn.Config(app, http=protocol, ws="none", access_log=False, **options)
