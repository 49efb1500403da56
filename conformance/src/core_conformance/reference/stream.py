"""The streams that ``generate``, ``chat`` and ``submit`` return.

A stream works in the thread that reads it. A submitted request is run by a thread of its own, at
once; its tokens wait for their reader.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from queue import Empty, SimpleQueue

from core.errors import GenerationCancelled
from core.kit.base import GeneratorStream, TokenStreamBase
from core.options import GenerateConfig
from core.types import FinishReason, GenerateMetrics, Token
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.meter import Meter

Record = Callable[[GenerateMetrics], None]
_POLL_SECONDS = 0.01


class ReferenceStream(GeneratorStream):
    """A `core.TokenStream`. It holds a slot from its first token to its end."""

    def __init__(self, engine: Engine, prompt: str, config: GenerateConfig, record: Record) -> None:
        super().__init__(record)
        self.engine, self.prompt, self.config = engine, prompt, config

    def tokens(self) -> Generator[Token, None, FinishReason]:
        """Run the whole request."""
        self._meter = Meter()
        row = self.engine.generation(self.prompt, self.config)
        yield from self.generate(row, self._meter)
        return row.reason or "error"

    def spent(self) -> GenerateMetrics:
        """Return the metrics of the request."""
        return self._meter.metrics()

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        """Yield the tokens of a row, as soon as it has a slot. Raises what stops it."""
        engine = self.engine
        with engine.slots.taken(lambda: self._check(row)), engine.running([row]):
            engine.prefill(row, meter)
            while row.reason is None:
                self._check(row)
                yield from engine.step([row], meter)[0]

    def _check(self, row: Generation) -> None:
        self.engine.check(row)
        if self._closed:
            raise GenerationCancelled


class SubmittedStream(TokenStreamBase):
    """A `core.TokenStream` around another that a separate thread reads."""

    def __init__(self, stream: ReferenceStream, record: Record) -> None:
        super().__init__()
        self._stream, self._record = stream, record
        self._queue: SimpleQueue[Token | BaseException] = SimpleQueue()
        self._reason: FinishReason | None = None
        self._worker = threading.Thread(
            target=self._work, args=(self._queue,), name="reference-submit", daemon=True
        )
        self._worker.start()

    @property
    def finish_reason(self) -> FinishReason | None:
        """None until the stream has been read to its end, or closed."""
        return self._reason

    @property
    def metrics(self) -> GenerateMetrics:
        """The metrics of this stream; all zero until it has ended."""
        return self._stream.metrics if self._reason else GenerateMetrics()

    def next_token(self) -> Token:
        """Return the next of those that wait."""
        if self._reason:
            raise StopIteration
        item = self._wait()
        if isinstance(item, Token):
            return item
        self._worker.join()
        self._end(self._stream.finish_reason or "error")
        raise item

    def close(self) -> None:
        """Stop; the worker, which may have come to the end before its reader, is done then."""
        self._stream.close()
        self._worker.join()
        if not self._reason:
            self._end("cancelled")

    def _wait(self) -> Token | BaseException:
        while True:
            try:
                return self._queue.get(timeout=_POLL_SECONDS)
            except Empty:
                self._stream.engine.slots.refuse_waiting_for_oneself()

    def _end(self, reason: FinishReason) -> None:
        self._reason = reason
        self._record(self.metrics)

    def _work(self, queue: SimpleQueue[Token | BaseException]) -> None:
        try:
            for token in self._stream:
                queue.put(token)
            queue.put(StopIteration())
        except Exception as error:  # noqa: BLE001 - as every error, it comes from next()
            queue.put(error)
