"""The token stream of every API, read line by line, by a thread or a task."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from core.errors import CoreError, GenerationCancelled
from core.kit.base import STOPPED, RequestClock, TokenStreamBase
from core.options import CancelToken, GenerateConfig
from core.types import FinishReason, GenerateMetrics, Token
from core_remote.exchange import Exchange
from core_remote.waiting import TooLateError, patience


class Wire(Protocol):
    """The part of a stream that depends on the API: its request, and the reader of its lines."""

    def begin(self, clock: RequestClock) -> Exchange:
        """Send the request. Raises the error of an invalid one."""
        ...

    def feed(self, line: bytes | None) -> list[Token]:
        """Return the tokens that a line completes; None is the end of the lines.

        Raises the error in it.
        """
        ...

    def watch(self, exchange: Exchange, cancel: CancelToken) -> None:
        """Stop the request once the cancel is set, even if the stream is not being read."""
        ...

    def stop(self) -> bool:
        """Request an early end. Returns True if the server will report the metrics."""
        ...

    @property
    def reason(self) -> FinishReason | None:
        """The reason why the answer ended; None until then."""
        ...

    @property
    def over(self) -> bool:
        """True once the server has ended its answer; a stop string ends it on this side alone."""
        ...

    def metrics(self, clock: RequestClock, given: int) -> GenerateMetrics:
        """Return the metrics, as reported by the server or measured here."""
        ...

    def check_usable(self) -> None:
        """Raise `core.ModelClosedError` if the connection is closed."""
        ...


class _ClosedError(Exception):
    """The internal error of a stream that another thread has closed."""


class RemoteStream(TokenStreamBase):
    """A `core.TokenStream`. One thread reads; any other may close.

    Received lines wait here, however slowly they are read. A stream that is garbage-collected
    without ``close()`` closes its connection, which stops the server.
    """

    def __init__(
        self, wire: Wire, config: GenerateConfig, record: Callable[[GenerateMetrics], None]
    ) -> None:
        super().__init__()
        self._wire, self._config = wire, config
        self._record: Callable[[GenerateMetrics], None] | None = record
        self._clock: RequestClock | None = None
        self._exchange: Exchange | None = None
        self._ready: deque[Token] = deque()
        self._given = 0
        self._reason: FinishReason | None = None
        self._metrics = GenerateMetrics()
        self._closed = False
        self._reader: int | None = None
        self._lock = threading.RLock()
        self._finalizer: weakref.finalize[..., RemoteStream] | None = None

    def begin_now(self) -> RemoteStream:
        """Send the request before the first read. ``next`` raises its error."""
        with suppress(CoreError):
            self._check()
            exchange = self._begun()
            if self._config.cancel is not None:
                self._wire.watch(exchange, self._config.cancel)
        return self

    def next_token(self) -> Token:
        """Return the next token that the server sends. See `core.TokenStream`."""
        with self._lock:
            self._reader = threading.get_ident()
            try:
                while not self._ready and self._reason is None:
                    self._read()
            finally:
                self._reader = None
            return self._take()

    async def next_async(self) -> Token | None:
        """Return the same for a task; None after the last token."""
        try:
            while not self._ready and self._reason is None:
                self._check()
                exchange = self._begun()
                self._feed(await exchange.anext(self._check))
        except Exception as error:
            await self._fail_async(error)
            raise
        except BaseException:  # the task was cancelled
            self._leave("cancelled")
            raise
        return self._take() if self._ready else None

    @property
    def finish_reason(self) -> FinishReason | None:
        """None until the stream has ended."""
        return self._reason if not self._ready else None

    @property
    def metrics(self) -> GenerateMetrics:
        """The metrics of this stream; all zero until it has ended."""
        return self._metrics

    def close(self) -> None:
        """Stop the stream. May be called at any time, from any thread, and more than once."""
        self._closed = True
        if self._reader == threading.get_ident():
            return  # a signal handler within next(), which sees it afterwards
        with self._lock:
            self._ready.clear()
            self._stop("cancelled")

    async def close_async(self) -> None:
        """Stop the stream, for a task."""
        self._closed = True
        self._ready.clear()
        await self._stop_async("cancelled")

    # ------------------------------------------------------------------ reading

    def _take(self) -> Token:
        if not self._ready:
            raise StopIteration
        self._given += 1
        token = self._ready.popleft()
        if not self._ready and self._reason is not None:
            self._publish()
        return token

    def _read(self) -> None:
        try:
            self._check()
            exchange = self._begun()
            self._feed(exchange.next(self._check))
        except _ClosedError:
            self._stop("cancelled")
        except Exception as error:
            self._fail(error)
            raise
        except BaseException:  # an interrupt
            self._leave("cancelled")
            raise

    def _begun(self) -> Exchange:
        if self._clock is None:
            self._clock = RequestClock(self._config)
        if self._exchange is None:
            self._exchange = self._wire.begin(self._clock)
            self._finalizer = weakref.finalize(self, self._exchange.abort)
            self._finalizer.atexit = False
        return self._exchange

    def _feed(self, line: bytes | None) -> None:
        self._ready.extend(self._wire.feed(line))
        if self._wire.reason is not None:
            self._end(self._wire.reason)

    def _check(self) -> None:
        if self._closed:
            raise _ClosedError
        if self._clock is None:
            self._clock = RequestClock(self._config)
        self._clock.check()
        self._wire.check_usable()

    # ------------------------------------------------------------------ ending

    def _fail(self, error: Exception) -> None:
        if isinstance(error, STOPPED):
            self._stop(_reason(error))
        else:
            self._leave("error")

    async def _fail_async(self, error: Exception) -> None:
        if isinstance(error, STOPPED):
            await self._stop_async(_reason(error))
        else:
            self._leave("error")

    def _stop(self, reason: FinishReason) -> None:
        """End the stream; a running request is stopped and marked so."""
        if self._reason is None and self._exchange is not None and self._asked_to_stop():
            late = patience()
            try:
                while self._wire.reason is None:
                    self._wire.feed(self._exchange.next(late))
            except (TooLateError, CoreError):
                pass
        self._leave(reason)

    async def _stop_async(self, reason: FinishReason) -> None:
        if self._reason is None and self._exchange is not None and self._asked_to_stop():
            late = patience()
            try:
                while self._wire.reason is None:
                    self._wire.feed(await self._exchange.anext(late))
            except (TooLateError, CoreError):
                pass
        self._leave(reason)

    def _asked_to_stop(self) -> bool:
        try:
            return self._wire.stop()
        except CoreError:
            return False

    def _leave(self, reason: FinishReason) -> None:
        if self._reason is None:
            self._end(reason)
        if not self._ready:
            self._publish()

    def _end(self, reason: FinishReason) -> None:
        if self._finalizer is not None:
            self._finalizer.detach()
        if self._exchange is not None and not self._wire.over:
            self._exchange.abort()
        self._reason = reason
        if not self._ready:
            self._publish()

    def _publish(self) -> None:
        """Set the metrics of the stream after its last token."""
        record, self._record = self._record, None
        if record is not None:
            clock = self._clock or RequestClock(self._config)
            metrics = self._wire.metrics(clock, self._given)
            self._metrics = replace(metrics, generated_tokens=self._given)
            record(self._metrics)


def _reason(error: Exception) -> FinishReason:
    return "cancelled" if isinstance(error, GenerationCancelled) else "error"
