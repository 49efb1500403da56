"""The token stream that ``generate`` and ``chat`` return."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from core.errors import GenerationCancelled
from core.kit.base import RequestClock, TokenStreamBase
from core.kit.text_stream import TokenBuffer
from core.options import GenerateConfig
from core.types import FinishReason, GenerateMetrics, Token
from core_mlx_lm_bridge import protocol
from core_mlx_lm_bridge.protocol import Chat, Done, Generate
from core_mlx_lm_bridge.session import WorkerSession
from core_mlx_lm_bridge.turns import QueuePlace, Turns

_STOP_SECONDS = 1.0  # a decoding worker stops within a token, and reports its metrics


@dataclass(frozen=True, slots=True)
class WorkerLine:
    """A model's worker, and the turns in which streams may use it."""

    session: WorkerSession
    turns: Turns


@dataclass(frozen=True, slots=True)
class _End:
    reason: FinishReason
    metrics: GenerateMetrics


class _ClosedError(Exception):
    """The internal error of a stream that another thread has closed."""


class BridgeStream(TokenStreamBase):
    """A `core.TokenStream`. ``prepare`` makes the request at the start, or raises its error.

    The stream has the worker to itself until it ends; the worker gets ahead of the reader only as
    far as the pipe holds. One thread reads; any other may close. A stream that is garbage-collected
    without ``close()`` is cancelled.
    """

    def __init__(
        self,
        line: WorkerLine,
        prepare: Callable[[], Generate | Chat],
        config: GenerateConfig,
        record: Callable[[GenerateMetrics], None],
    ) -> None:
        super().__init__()
        self._line, self._prepare, self._config, self._record = line, prepare, config, record
        self._buffer = TokenBuffer(config.stop)
        self._given = 0  # tokens that the buffer has released
        self._ready: deque[Token] = deque()

        self._turn = QueuePlace()
        self._clock: RequestClock | None = None
        self._first = 0.0  # seconds from the start to the first token

        self._over: _End | None = None  # the worker is done with it
        self._end: _End | None = None  # and the reader too
        self._closed = False
        self._reader: int | None = None
        self._lock = threading.RLock()

        # At exit nothing has to be cancelled: the worker ends with this process.
        self._finalizer = weakref.finalize(self, _drop, line, self._turn)
        self._finalizer.atexit = False

    def next_token(self) -> Token:
        """Return the next token that the worker sends. See `core.TokenStream`."""
        with self._lock:
            self._reader = threading.get_ident()
            try:
                while not self._ready and self._over is None:
                    self._read()
            finally:
                self._reader = None
            if self._ready:
                return self._ready.popleft()
            self._publish()
            raise StopIteration

    @property
    def finish_reason(self) -> FinishReason | None:
        """None until the stream has ended."""
        return self._end.reason if self._end else None

    @property
    def metrics(self) -> GenerateMetrics:
        """The metrics of this stream; all zero until it has ended."""
        return self._end.metrics if self._end else GenerateMetrics()

    def close(self) -> None:
        """Cancel the stream. May be called at any time, from any thread, and more than once."""
        self._closed = True
        if self._reader == threading.get_ident():
            return  # a signal handler within next(), which sees it afterwards
        with self._lock:
            self._ready.clear()
            self._finish("cancelled")
            self._publish()

    def _read(self) -> None:
        try:
            self._check()
            id = self._begin() if self._turn.id is None else self._turn.id
            self._turn.thread = threading.get_ident()
            self._take(self._line.session.answer(id, self._check))
        except _ClosedError:
            self._finish("cancelled")
        except Exception as error:
            self._fail("cancelled" if isinstance(error, GenerationCancelled) else "error")
            raise
        except BaseException:  # an interrupt
            self._fail("cancelled")
            raise

    def _begin(self) -> int:
        request = self._prepare()
        self._line.turns.join(self._turn, self._check)
        self._turn.id = id = self._line.session.ask(request, self._check)
        return id

    def _take(self, answer: protocol.TokenAnswer | Done) -> None:
        if isinstance(answer, Done):
            self._give(self._buffer.release(answer.token))
            self._conclude("stop" if self._buffer.stopped else _reason(answer), answer)
            return
        if not self._first:
            self._first = self._seconds()
        token = Token(answer.token_id, answer.token, answer.logprob)
        self._give(self._buffer.hold(token, incomplete=answer.open))
        if self._buffer.stopped:
            self._finish("stop")

    def _give(self, tokens: list[Token]) -> None:
        self._ready.extend(tokens)
        self._given += len(tokens)

    def _seconds(self) -> float:
        return self._clock.seconds if self._clock else 0.0

    def _check(self) -> None:
        if self._closed:
            raise _ClosedError
        if self._clock is None:
            self._clock = RequestClock(self._config)
        self._clock.check()
        self._line.session.check_usable()

    def _fail(self, reason: FinishReason) -> None:
        self._finish(reason)
        self._publish()

    def _finish(self, reason: FinishReason) -> None:
        """End the stream; a request that the worker still runs is cancelled."""
        if self._over is None:
            done = None
            if self._turn.id is not None:
                patience = _STOP_SECONDS if self._first else 0.0  # a prefill may take long
                done = self._line.session.stop(self._turn.id, patience)
            self._conclude(reason, done)

    def _conclude(self, reason: FinishReason, done: Done | None) -> None:
        self._finalizer.detach()
        self._line.turns.leave(self._turn)
        self._over = _End(reason, self._metrics(done))

    def _publish(self) -> None:
        if self._end is None and self._over is not None:
            self._end = self._over
            self._record(self._end.metrics)

    def _metrics(self, done: Done | None) -> GenerateMetrics:
        """Return the metrics that the worker reports, or as measured here if it does not."""
        total = self._seconds()
        if done is None:
            first = self._first or total
            return GenerateMetrics(
                generated_tokens=self._given,
                prefill_seconds=first,
                decode_seconds=total - first,
                total_seconds=total,
            )

        return GenerateMetrics(
            prompt_tokens=done.prompt_tokens,
            generated_tokens=self._given,
            prefill_seconds=_seconds(done.prompt_tokens, done.prompt_tps),
            decode_seconds=_seconds(done.generation_tokens, done.generation_tps),
            total_seconds=total,
            peak_memory_bytes=done.peak_memory_bytes,
            active_memory_bytes=done.active_memory_bytes,
        )


def _drop(line: WorkerLine, turn: QueuePlace) -> None:
    """Cancel the request of a garbage-collected stream, and make room for the next."""
    if turn.id is not None:
        line.session.abandon(turn.id)
    line.turns.leave(turn)


def _reason(done: Done) -> FinishReason:
    return "length" if done.finish_reason == "length" else "stop"


def _seconds(tokens: int, per_second: float) -> float:
    return tokens / per_second if per_second else 0.0
