"""What ``generate``, ``chat`` and ``submit`` return."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Self

from core.errors import CoreError
from core.types import FinishReason, GenerateMetrics, Token
from core_mlx_native.request import End, Item, Request, Sink

Start = Callable[[Sink], Request]


class MlxStream(Iterator[Token]):
    """A `core.TokenStream`. ``start`` tokenises the prompt and submits the request.

    The engine does not wait for the reader: tokens that nobody reads pile up, at most
    ``max_tokens`` of them. A stream that is dropped without ``close()`` ends by itself.
    """

    def __init__(self, start: Start, record: Callable[[GenerateMetrics], None]) -> None:
        self._start, self._record = start, record
        self._queue: SimpleQueue[Item] = SimpleQueue()
        self._ready: deque[Token] = deque()
        self._request: Request | None = None
        self._end: End | None = None

    def start(self) -> Self:
        """Begin now instead of at the first ``next()``. What is wrong with the prompt comes there.

        Raises `ModelClosedError`.
        """
        if self._request is None and self._end is None:
            try:
                self._request = self._start(self._queue.put)
            except CoreError as error:
                self._queue.put(End("error", error, GenerateMetrics()))
            else:
                weakref.finalize(self, self._request.abandon)
        return self

    def __next__(self) -> Token:
        if self._request is None:
            self.start()
        while not self._ready:
            if self._end is not None:
                raise StopIteration
            item = self._queue.get()
            if isinstance(item, End):
                self._finish(item)
                if item.error is not None:
                    raise item.error
            else:
                self._ready.extend(item)
        return self._ready.popleft()

    @property
    def finish_reason(self) -> FinishReason | None:
        """None until the stream has ended."""
        return self._end.reason if self._end else None

    @property
    def metrics(self) -> GenerateMetrics:
        """Of this stream; all zero until it has ended."""
        return self._end.metrics if self._end else GenerateMetrics()

    def close(self) -> None:
        """Stop cleanly: the engine is done with it when this returns. Twice is fine."""
        self._ready.clear()
        if self._end is not None:
            return
        if self._request is None:
            self._end = End("cancelled", None, GenerateMetrics())
            return
        self._request.abandon()
        while self._end is None:
            item = self._queue.get()
            if isinstance(item, End):
                self._finish(item)

    def _finish(self, end: End) -> None:
        self._end = end
        self._record(end.metrics)
