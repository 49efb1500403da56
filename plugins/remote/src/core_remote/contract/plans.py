"""Calls that are checked and ready to be sent: run by a thread, or awaited by a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar, cast

from core.clock import STOPPED, RequestClock
from core.errors import CoreError, GenerationCancelled, GenerationTimeout
from core.options import GenerateConfig
from core.types import BatchResult, GenerateMetrics, TokenSequence
from core_remote.contract.calls import Asked, RowReader, ValueReader, in_own_time, in_time
from core_remote.waiting import read, read_async

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Plan(Protocol[T_co]):
    """A call of a model. It can be run once."""

    @property
    def metrics(self) -> GenerateMetrics:
        """What it cost."""
        ...

    def run(self) -> T_co:
        """The result. Raises what keeps the call from one."""
        ...

    async def run_async(self) -> T_co:
        """The same, for a task."""
        ...


class Rows(Generic[T]):
    """A call over rows, of which those with an error of their own are not sent.

    ``failed`` makes the result of such a row, by its place, and of one that was stopped.
    """

    def __init__(
        self,
        asked: Asked,
        kind: type[T],
        config: GenerateConfig,
        rows: int,
        wrong: Mapping[int, CoreError],
        failed: Callable[[int, CoreError], T],
        clock: RequestClock | None = None,
    ) -> None:
        self._asked, self._config, self._rows = asked, config, rows
        self._wrong, self._failed = wrong, failed
        self._reader = RowReader(asked, kind, rows - len(wrong))
        self._clock = clock or RequestClock(config)
        self.metrics = GenerateMetrics()

    def run(self) -> list[T]:
        """One result for each row, in order."""
        try:
            self._check()
            if self._rows > len(self._wrong):
                read(self._asked.send(self._config, self._clock), self._reader, self._check)
        except STOPPED as error:
            self._reader.stopped = error
        except CoreError as error:
            raise in_own_time(error, self._config) from None
        return self._results()

    async def run_async(self) -> list[T]:
        """The same, for a task."""
        try:
            self._check()
            if self._rows > len(self._wrong):
                exchange = self._asked.send(self._config, self._clock)
                await read_async(exchange, self._reader, self._check)
        except STOPPED as error:
            self._reader.stopped = error
        except CoreError as error:
            raise in_own_time(error, self._config) from None
        return self._results()

    def _check(self) -> None:
        self._clock.check()
        self._asked.connection.check_usable()

    def _results(self) -> list[T]:
        stopped, came = self._reader.stopped, iter(self._reader.results)
        self.metrics = in_time(self._reader.metrics, self._clock)
        found = list[Any]()
        for place in range(self._rows):
            error = self._wrong.get(place)
            result = None if error is not None else next(came, None)
            if result is None:
                result = self._failed(place, error or stopped or GenerationCancelled())
            found.append(_in_place(result, stopped, self._config))
        if stopped is not None and not any(row.error for row in found):
            # The server heard of it when its work was done; here nothing was there when it came.
            found = [self._undone(place, row, stopped) for place, row in enumerate(found)]
        return found

    def _undone(self, place: int, row: Any, stopped: CoreError) -> T:
        failed = self._failed(place, stopped)
        if isinstance(row, BatchResult | TokenSequence):
            ended = cast("BatchResult", failed)
            return cast("T", replace(row, error=stopped, finish_reason=ended.finish_reason))
        return failed


class Value(Generic[T]):
    """A call that has one value."""

    def __init__(self, asked: Asked, kind: type[T], config: GenerateConfig) -> None:
        self._asked, self._config = asked, config
        self._reader = ValueReader(asked, kind)
        self._clock = RequestClock(config)
        self.metrics = GenerateMetrics()

    def run(self) -> T:
        """The value. Raises what keeps the call from one."""
        try:
            self._check()
            read(self._asked.send(self._config, self._clock), self._reader, self._check)
        except CoreError as error:
            raise in_own_time(error, self._config) from None
        return self._value()

    async def run_async(self) -> T:
        """The same, for a task."""
        try:
            self._check()
            exchange = self._asked.send(self._config, self._clock)
            await read_async(exchange, self._reader, self._check)
        except CoreError as error:
            raise in_own_time(error, self._config) from None
        return self._value()

    def _check(self) -> None:
        self._clock.check()
        self._asked.connection.check_usable()

    def _value(self) -> T:
        if self._reader.stopped is not None:
            raise self._reader.stopped
        self.metrics = in_time(self._reader.metrics, self._clock)
        return self._reader.found[0]


def _in_place(result: Any, stopped: CoreError | None, config: GenerateConfig) -> Any:
    """A row of a call that was stopped on this side: its error is what stopped it."""
    error = result.error
    if isinstance(error, GenerationCancelled) and stopped is not None:
        return replace(result, error=stopped)
    if isinstance(error, GenerationTimeout):
        return replace(result, error=in_own_time(error, config))
    return result
