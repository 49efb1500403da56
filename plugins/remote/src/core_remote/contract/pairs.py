"""``batch_stream`` over core's API: rows and tokens, for a thread or a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator

from core.errors import CoreError, EmptyPromptError, GenerationCancelled
from core.kit.base import STOPPED, RequestClock
from core.options import GenerateConfig
from core.types import GenerateMetrics, Token
from core_remote import failures
from core_remote.contract import checking
from core_remote.contract.calls import RunningCall, in_time, of_this_side
from core_remote.waiting import TooLateError, patience

Pair = tuple[int, Token]


class Pairs:
    """A call of ``batch_stream``: read once, by a thread or a task."""

    def __init__(
        self,
        call: RunningCall,
        config: GenerateConfig,
        rows: int,
        wrong: dict[int, CoreError],
        record: Callable[[GenerateMetrics], None],
    ) -> None:
        self._call, self._config, self._wrong = call, config, wrong
        self._rows = 0 if len(wrong) == rows else rows  # that are sent
        self._record = record
        self._clock: RequestClock | None = None
        self._error: Exception | None = None
        self._given, self._whole = Counter[int](), False
        self._most = self._rows * config.max_tokens
        self.metrics = GenerateMetrics()

    def read(self) -> Iterator[Pair]:
        """Yield the pairs as they come; then raise the error of the first row that failed."""
        clock = self._begun()
        try:
            if self._rows:
                exchange = self._call.send(self._config, clock, self._most)
                try:
                    while not self._whole:
                        yield from self._pairs(exchange.next(self._check))
                except (GeneratorExit, *STOPPED):
                    self._stop()
                    late = patience()
                    while not self._whole:
                        self._pairs(exchange.next(late))
                    raise
                finally:
                    if not self._whole:
                        exchange.abort()
        except TooLateError:
            pass
        finally:
            self._end(clock)
        self._raise()

    async def read_async(self) -> AsyncGenerator[Pair, None]:
        """Yield the same, for a task."""
        clock = self._begun()
        try:
            if self._rows:
                exchange = self._call.send(self._config, clock, self._most)
                try:
                    while not self._whole:
                        for pair in self._pairs(await exchange.anext(self._check)):
                            yield pair
                finally:
                    if not self._whole:
                        exchange.abort()
        finally:
            self._end(clock)
        self._raise()

    def _begun(self) -> RequestClock:
        clock = self._clock = RequestClock(self._config)
        self._check()
        return clock

    def _check(self) -> None:
        assert self._clock is not None
        self._clock.check()
        self._call.connection.check_usable()

    def _stop(self) -> None:
        self._error = GenerationCancelled()
        self._call.stop()

    def _pairs(self, line: bytes | None) -> list[Pair]:
        call = self._call
        event = call.event(line)
        if "token" in event:
            row = call.value(int, event.get("row"))
            if not 0 <= row < self._rows:
                raise call.nonsense(f"a token of row {row}")
            self._given[row] += 1
            if self._given[row] > self._config.max_tokens:
                raise call.nonsense(checking.too_many(self._config))
            return [(row, call.token(event["token"]))]
        if "end" in event:
            self.metrics = call.end(event["end"]).metrics
        if "error" in event:
            error = failures.from_wire(call.connection.address, event["error"])
            self._error = of_this_side(error, self._config, call.connection.address)
        elif "end" not in event:
            raise call.nonsense(f"an event of {sorted(event)}")
        self._whole = True
        return []

    def _end(self, clock: RequestClock) -> None:
        self.metrics = in_time(self.metrics, clock)
        self._record(self.metrics)

    def _raise(self) -> None:
        """Raise the error of the first row that failed; an empty text may stand for another."""
        if self._wrong and isinstance(self._error, EmptyPromptError | None):
            raise self._wrong[min(self._wrong)]
        if self._error is not None:
            raise self._error
