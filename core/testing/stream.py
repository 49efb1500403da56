"""The streams of the fake's ``generate``, ``chat`` and ``submit``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress

from core.errors import GenerationCancelled
from core.kit.base import TokenStreamBase
from core.protocols import TokenStream
from core.testing.generation import Generation
from core.types import FinishReason, GenerateMetrics, Token

Record = Callable[[GenerateMetrics], None]


class FakeStream(TokenStreamBase):
    """A `core.TokenStream` that works in the thread which reads it.

    ``begin`` makes its row, at the first token; ``record`` takes the metrics, at the end.
    """

    def __init__(self, begin: Callable[[], Generation], record: Record) -> None:
        super().__init__()
        self._begin, self._record = begin, record
        self._tokens = self._run()
        self._started = self._closed = False
        self._reason: FinishReason | None = None
        self._metrics = GenerateMetrics()

    @property
    def finish_reason(self) -> FinishReason | None:
        """None until the stream has ended."""
        return self._reason

    @property
    def metrics(self) -> GenerateMetrics:
        """Cost of this stream; all zero until it has ended."""
        return self._metrics

    def next_token(self) -> Token:
        """Return the next token of the row. See `core.TokenStream`."""
        self._started = True
        return next(self._tokens)

    def close(self) -> None:
        """Stop. While another thread reads, it stops at that thread's next token."""
        self._closed = True
        if not self._started:
            self._started, self._reason = True, "cancelled"
        with suppress(ValueError):  # another thread is inside the generator
            self._tokens.close()

    def _run(self) -> Generator[Token, None, None]:
        row = self._begin()
        reason: FinishReason = "error"
        try:
            for token in row.tokens():
                if self._closed:
                    break
                yield token
            reason = "cancelled" if self._closed else row.reason or "error"
        except (GeneratorExit, GenerationCancelled):
            reason = "cancelled"
            raise
        finally:
            self._reason, self._metrics = reason, row.metrics()
            self._record(self._metrics)


class ReadStream(TokenStreamBase):
    """A `core.TokenStream` over another that it reads to its end at once; tokens wait here."""

    def __init__(self, stream: TokenStream, record: Record) -> None:
        super().__init__()
        self._stream, self._record = stream, record
        self._waiting: deque[Token] = deque()
        self._error: Exception | None = None
        self._reason: FinishReason | None = None
        try:
            self._waiting.extend(stream)  # tokens before an error are kept
        except Exception as error:  # noqa: BLE001 - as every error, it comes from next()
            self._error = error

    @property
    def finish_reason(self) -> FinishReason | None:
        """None until the stream has been read to its end, or closed."""
        return self._reason

    @property
    def metrics(self) -> GenerateMetrics:
        """Cost of this stream; all zero until it has ended."""
        return GenerateMetrics() if self._reason is None else self._stream.metrics

    def next_token(self) -> Token:
        """Return the next waiting token. See `core.TokenStream`."""
        if self._waiting:
            return self._waiting.popleft()
        error, self._error = self._error, None
        self._end(self._stream.finish_reason or "error")
        raise error or StopIteration

    def close(self) -> None:
        """Drop the unread tokens."""
        self._waiting.clear()
        self._error = None
        self._end("cancelled")

    def _end(self, reason: FinishReason) -> None:
        if self._reason is None:
            self._reason = reason
            self._record(self._stream.metrics)
