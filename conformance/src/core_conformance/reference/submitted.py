"""What ``submit`` returns: a worker does the work at once, the tokens wait for their reader."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Empty, SimpleQueue

from core.types import FinishReason, GenerateMetrics, Token
from core_conformance.reference.stream import Record, ReferenceStream

_POLL_SECONDS = 0.01


class SubmittedStream(Iterator[Token]):
    """A `core.TokenStream` around another that a thread of its own reads."""

    def __init__(self, stream: ReferenceStream, record: Record) -> None:
        self._stream, self._record = stream, record
        self._queue: SimpleQueue[Token | BaseException] = SimpleQueue()
        self._ended = False
        self._worker = threading.Thread(
            target=self._work, args=(self._queue,), name="reference-submit", daemon=True
        )
        self._worker.start()

    @property
    def finish_reason(self) -> FinishReason | None:
        """None until the stream has been read to its end, or closed."""
        return self._stream.finish_reason if self._ended else None

    @property
    def metrics(self) -> GenerateMetrics:
        """Of this stream; all zero until it has ended."""
        return self._stream.metrics if self._ended else GenerateMetrics()

    def __next__(self) -> Token:
        if self._ended:
            raise StopIteration
        item = self._wait()
        if isinstance(item, Token):
            return item
        self._end()
        raise item

    def close(self) -> None:
        """Stop; the worker is done when this returns."""
        self._stream.close()
        if not self._ended:
            self._end()

    def _wait(self) -> Token | BaseException:
        while True:
            try:
                return self._queue.get(timeout=_POLL_SECONDS)
            except Empty:
                self._stream.engine.slots.refuse_waiting_for_oneself()

    def _end(self) -> None:
        self._worker.join()
        self._ended = True
        self._record(self.metrics)

    def _work(self, queue: SimpleQueue[Token | BaseException]) -> None:
        try:
            for token in self._stream:
                queue.put(token)
            queue.put(StopIteration())
        except Exception as error:  # noqa: BLE001 - as every error, it comes from next()
            queue.put(error)
