"""The stream that ``generate``, ``chat`` and ``submit`` return."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue
from typing import Self

from core.errors import ModelError
from core.kit.base import TokenStreamBase
from core.types import FinishReason, GenerateMetrics, Token
from core_runtime.engine import Engine
from core_runtime.request import Item, Request, RequestEnd, Sink, reason_of
from core_runtime.waiting import PromptJob

Make = Callable[[Sink], Request]


class RequestStream(TokenStreamBase):
    """A `core.TokenStream`. ``make`` tokenises the prompt and makes the request, at the start.

    The engine does not wait for the reader: unread tokens are queued, at most ``max_tokens`` of
    them. A stream that is garbage-collected without ``close()`` ends by itself. One thread reads;
    any other may close.
    """

    def __init__(
        self, make: Make, engine: Engine, record: Callable[[GenerateMetrics], None]
    ) -> None:
        super().__init__()
        self._make, self._engine, self._record = make, engine, record
        self._queue: SimpleQueue[Item] = SimpleQueue()
        self._ready: deque[Token] = deque()
        self._request: Request | None = None
        self._end: RequestEnd | None = None
        self._started = False
        self._closed = False

    def start(self) -> Self:
        """Start now, not at the first ``next()``; errors are still raised from ``next()``."""
        if self._started:
            return self
        self._started = True
        try:
            request = self._request = self._make(self._queue.put)
            self._engine.submit([PromptJob(request.ids, (request,))])
            # Not for a refused request: its error's frames hold this stream.
            weakref.finalize(self, request.abandon)
            if self._closed:  # by another thread, in between
                request.abandon()
        except Exception as error:  # noqa: BLE001 - next() raises it
            self._queue.put(RequestEnd(reason_of(error), error, GenerateMetrics()))
        except BaseException:  # an interrupt: the engine may have it or not
            self._queue.put(RequestEnd("cancelled", None, GenerateMetrics()))
            self.close()
            raise
        return self

    def next_token(self) -> Token:
        """Return the next token, as soon as the engine has it. See `core.TokenStream`."""
        self.start()
        while not self._closed:
            with suppress(IndexError):
                return self._ready.popleft()
            if self._end is not None:
                break
            item = self._engine.receive(self._queue, self._look)
            if isinstance(item, RequestEnd):
                self._finish(item)
                if item.error is not None and not self._closed:
                    raise item.error
            else:
                self._ready.extend(item)
        raise StopIteration

    @property
    def finish_reason(self) -> FinishReason | None:
        """None until the stream has ended."""
        return self._end.reason if self._end else None

    @property
    def metrics(self) -> GenerateMetrics:
        """Cost of this stream; all zero until it has ended."""
        return self._end.metrics if self._end else GenerateMetrics()

    def close(self) -> None:
        """Stop cleanly: the engine has released the request when this returns. Twice is fine.

        The stream ends as cancelled, even if the engine had finished before the reader; a failed
        one stays failed. If waiting would never end (in a finalizer on the model's thread, in a
        fork), this does not wait.
        """
        self._closed = True
        self._ready.clear()

        if self._end is not None:
            return
        if not self._started:
            self._started = True
            self._end = RequestEnd("cancelled", None, GenerateMetrics())
            return

        # The engine releases it between two steps, and confirms it.
        if self._request is not None:
            self._request.abandon()
        while self._end is None:
            try:
                item = self._engine.receive(self._queue)
            except ModelError:
                item = RequestEnd("cancelled", None, GenerateMetrics())
            if isinstance(item, RequestEnd):
                self._finish(item if item.error else replace(item, reason="cancelled"))

    def _look(self) -> None:
        if self._request is not None:
            self._request.look()

    def _finish(self, end: RequestEnd) -> None:
        # Without its error, which would hold the frames of its reader, and so this stream.
        self._end = replace(end, error=None)
        self._queue.put(self._end)  # for a thread that reads while this one closes
        self._record(end.metrics)
