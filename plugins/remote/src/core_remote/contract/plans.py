"""Checked calls that are ready to be sent: run by a thread, or awaited by a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar, cast

from core.errors import CoreError, GenerationCancelled
from core.kit.base import STOPPED, RequestClock
from core.options import GenerateConfig
from core.types import BatchResult, GenerateMetrics, TokenSequence
from core_remote import failures
from core_remote.contract import checking
from core_remote.contract.calls import RowReader, RunningCall, ValueReader, in_time, of_this_side
from core_remote.exchange import Exchange
from core_remote.waiting import read, read_async

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class CallPlan(Protocol[T_co]):
    """A call of a model. It can be run once."""

    @property
    def metrics(self) -> GenerateMetrics:
        """The metrics of the call."""
        ...

    def run(self) -> T_co:
        """Return the result. Raises the error of the call."""
        ...

    async def run_async(self) -> T_co:
        """Return the same, for a task."""
        ...


class RowsPlan(Generic[T]):
    """A call over rows; rows with an error are not sent.

    ``failed`` makes the result of such a row, by its index, and of a stopped row.
    """

    def __init__(
        self,
        call: RunningCall,
        kind: type[T],
        config: GenerateConfig,
        rows: int,
        wrong: Mapping[int, CoreError],
        failed: Callable[[int, CoreError], T],
        clock: RequestClock | None = None,
    ) -> None:
        self._call, self._config, self._rows = call, config, rows
        self._wrong, self._failed = wrong, failed
        self._reader = RowReader(call, kind, rows - len(wrong))
        self._clock = clock or RequestClock(config)
        self.metrics = GenerateMetrics()

    def run(self) -> list[T]:
        """Return a result for each row, in order."""
        try:
            self._check()
            if self._rows > len(self._wrong):
                read(self._sent(), self._reader, self._check)
        except STOPPED as error:
            self._reader.stopped = error
        except CoreError as error:
            raise of_this_side(error, self._config, self._call.connection.address) from None
        return self._results()

    async def run_async(self) -> list[T]:
        """Return the same, for a task."""
        try:
            self._check()
            if self._rows > len(self._wrong):
                await read_async(self._sent(), self._reader, self._check)
        except STOPPED as error:
            self._reader.stopped = error
        except CoreError as error:
            raise of_this_side(error, self._config, self._call.connection.address) from None
        return self._results()

    def _sent(self) -> Exchange:
        return self._call.send(self._config, self._clock, self._rows)

    def _check(self) -> None:
        self._clock.check()
        self._call.connection.check_usable()

    def _results(self) -> list[T]:
        stopped, came = self._reader.stopped, enumerate(self._reader.results)
        self.metrics = in_time(self._reader.metrics, self._clock)
        results = list[Any]()
        for place in range(self._rows):
            error = self._wrong.get(place)
            row = None if error is not None else next(came, None)
            if row is None:
                results.append(self._failed(place, error or stopped or GenerationCancelled()))
            else:
                results.append(self._checked(place, *row, stopped))
        if stopped is not None and not any(row.error for row in results):
            # The server heard of it when its work was done; here nothing was there when it came.
            results = [self._undone(place, row, stopped) for place, row in enumerate(results)]
        return results

    def _checked(self, place: int, sent: int, row: Any, stopped: CoreError | None) -> Any:
        """Return a received row, checked; ``sent``: its index among the rows that were sent."""
        call, config = self._call, self._config
        address, error = call.connection.address, row.error
        wrong = checking.of_row(row, sent, config, call.info, call.arguments)
        if wrong is not None:
            return self._failed(place, failures.impossible(address, wrong))
        if error is None:
            return row
        if isinstance(error, GenerationCancelled) and stopped is not None:
            return replace(row, error=stopped)
        error = of_this_side(failures.quoted(address, error), config, address)
        if not isinstance(row, BatchResult | TokenSequence):
            return self._failed(place, error)
        cancelled = isinstance(error, GenerationCancelled)
        return replace(row, error=error, finish_reason="cancelled" if cancelled else "error")

    def _undone(self, place: int, row: Any, stopped: CoreError) -> T:
        failed = self._failed(place, stopped)
        if isinstance(row, BatchResult | TokenSequence):
            ended = cast("BatchResult", failed)
            return cast("T", replace(row, error=stopped, finish_reason=ended.finish_reason))
        return failed


class ValuePlan(Generic[T]):
    """A call with one value. ``check`` returns a description of its fault, or None."""

    def __init__(
        self,
        call: RunningCall,
        kind: type[T],
        config: GenerateConfig,
        check: Callable[[T], str | None] | None = None,
    ) -> None:
        self._call, self._config, self._wrong = call, config, check
        self._reader = ValueReader(call, kind)
        self._clock = RequestClock(config)
        self.metrics = GenerateMetrics()

    def run(self) -> T:
        """Return the value. Raises the error of the call."""
        try:
            self._check()
            read(self._sent(), self._reader, self._check)
        except CoreError as error:
            raise of_this_side(error, self._config, self._call.connection.address) from None
        return self._value()

    async def run_async(self) -> T:
        """Return the same, for a task."""
        try:
            self._check()
            await read_async(self._sent(), self._reader, self._check)
        except CoreError as error:
            raise of_this_side(error, self._config, self._call.connection.address) from None
        return self._value()

    def _sent(self) -> Exchange:
        return self._call.send(self._config, self._clock, 1)

    def _check(self) -> None:
        self._clock.check()
        self._call.connection.check_usable()

    def _value(self) -> T:
        if self._reader.stopped is not None:
            raise self._reader.stopped
        self.metrics = in_time(self._reader.metrics, self._clock)
        value = self._reader.values[0]
        self._call.check(self._wrong(value) if self._wrong is not None else None)
        return value
