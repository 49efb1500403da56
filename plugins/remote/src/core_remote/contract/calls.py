"""Calls of core's API: their bodies, and the readers of their events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar
from uuid import uuid4

import msgspec

from core.errors import CoreError, GenerationCancelled, GenerationTimeout
from core.kit.base import RequestClock
from core.options import CancelToken, GenerateConfig
from core.types import FinishReason, GenerateMetrics, ModelInfo, Token
from core_remote import failures
from core_remote.address import Address
from core_remote.connection import Connection
from core_remote.contract import checking
from core_remote.exchange import Exchange
from core_wires.contract import PREFIX, Call, End, options_of
from core_wires.plain import plain, value_of

T = TypeVar("T")
Event = Mapping[str, Any]
_decoder = msgspec.json.Decoder()
_LEAST_SECONDS = 1e-9


class RunningCall:
    """One call of a model: sent, read event by event, and stopped by its id.

    ``info`` are the facts of the model.
    """

    def __init__(
        self,
        connection: Connection,
        operation: str,
        arguments: Mapping[str, object],
        info: ModelInfo,
    ) -> None:
        self.connection, self.operation, self.arguments = connection, operation, arguments
        self.info, self.id = info, uuid4().hex

    def send(self, config: GenerateConfig, clock: RequestClock, most: int) -> Exchange:
        """Send the call with the rest of its timeout; it may have about ``most`` events.

        Raises `ModelClosedError`.
        """
        timeout = config.timeout
        if timeout is not None:
            timeout = max(_LEAST_SECONDS, timeout - clock.seconds)
        options = options_of(replace(config, timeout=timeout, stop=_sound(config.stop)))
        call = Call(self.connection.address.model, self.id, self.arguments, options)
        return self.connection.ask(PREFIX + self.operation, plain(call), most)

    def stop(self) -> None:
        """Have the server end the call as if its cancel was set."""
        self.connection.notify(PREFIX + "cancel", plain(Call(id=self.id)))

    def event(self, line: bytes | None) -> Event:
        """Return the event of a line.

        Raises `core.BackendProcessError` if it is not an event, and for None.
        """
        if line is None:
            raise failures.died(self.connection.address)
        try:
            event = _decoder.decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise self.nonsense(f"{error} in {line[:80]!r}") from None
        if not isinstance(event, dict) or not event:
            raise self.nonsense(f"{line[:80]!r} is not an event")
        return event

    def value(self, kind: type[T], data: object) -> T:
        """Return the value in an event. Raises `core.BackendProcessError`."""
        try:
            return value_of(kind, data)
        except (ValueError, CoreError) as error:
            raise self.nonsense(str(error)) from None

    def end(self, data: object) -> End:
        """Return the end of a call. Raises `core.BackendProcessError`."""
        end = self.value(End, data)
        self.check(checking.of_metrics(end.metrics))
        return end

    def token(self, data: object) -> Token:
        """Return a generated token. Raises `core.BackendProcessError`."""
        token = self.value(Token, data)
        self.check(checking.of_token(token, self.info))
        return token

    def check(self, wrong: str | None) -> None:
        """Raise `core.BackendProcessError` if ``wrong`` is not None."""
        if wrong is not None:
            raise self.nonsense(wrong)

    def nonsense(self, what: str) -> Exception:
        """Return the error for an invalid answer to this call."""
        return failures.nonsense(self.connection.address, f"{what}, in answer to {self.operation}")


class RowReader(Generic[T]):
    """A reader of the results of a call over rows.

    ``metrics`` are the server's; ``results`` has the results so far, in order.
    """

    def __init__(self, call: RunningCall, kind: type[T], rows: int) -> None:
        self._call, self._kind, self._rows = call, kind, rows
        self.results: list[T] = []
        self.metrics = GenerateMetrics()
        self.stopped: CoreError | None = None

    def feed(self, line: bytes | None) -> bool:
        """Take a line. True once the answer is whole. Raises the error of the call."""
        event = self._call.event(line)
        if "result" in event:
            if len(self.results) == self._rows:
                raise self._call.nonsense(f"more results than the {self._rows} rows")
            self.results.append(self._call.value(self._kind, event["result"]))
            return False
        if "error" in event:
            raise failures.from_wire(self._call.connection.address, event["error"])
        if "end" not in event:
            raise self._call.nonsense(f"an event of {sorted(event)}")
        if len(self.results) != self._rows:
            raise self._call.nonsense(f"{len(self.results)} results for {self._rows} rows")
        self.metrics = self._call.end(event["end"]).metrics
        return True

    def stop(self, error: CoreError) -> bool:
        """Have the server end the call; its results until then are the answer."""
        self.stopped = error
        self._call.stop()
        return True


class ValueReader(Generic[T]):
    """A reader of the value of any other call."""

    def __init__(self, call: RunningCall, kind: type[T]) -> None:
        self._call, self._kind = call, kind
        self.values: list[T] = []
        self.metrics = GenerateMetrics()
        self.stopped: CoreError | None = None

    def feed(self, line: bytes | None) -> bool:
        """Take a line. True once the answer is whole. Raises the error of the call."""
        event = self._call.event(line)
        if "error" in event:
            raise failures.from_wire(self._call.connection.address, event["error"])
        if "value" in event and not self.values:
            self.values.append(self._call.value(self._kind, event["value"]))
            return False
        if "end" not in event or not self.values:
            raise self._call.nonsense(f"an event of {sorted(event)}")
        self.metrics = self._call.end(event["end"]).metrics
        return True

    def stop(self, error: CoreError) -> bool:
        """Have the server end the call. Returns False: nothing is worth waiting for."""
        self.stopped = error
        self._call.stop()
        return False


class StreamWire:
    """A stream of core's API, for `core_remote.stream.RemoteStream`."""

    def __init__(
        self, call: RunningCall, config: GenerateConfig, wrong: CoreError | None = None
    ) -> None:
        self._call, self._config, self._wrong = call, config, wrong
        self._metrics = GenerateMetrics()
        self._count = 0
        self.reason: FinishReason | None = None

    def begin(self, clock: RequestClock) -> Exchange:
        """Send the request. Raises the error of the prompt."""
        if self._wrong is not None:
            raise self._wrong
        return self._call.send(self._config, clock, self._config.max_tokens)

    @property
    def over(self) -> bool:
        """True once the server has reported the end."""
        return self.reason is not None

    def feed(self, line: bytes | None) -> list[Token]:
        """Return the token of a line. Raises the error in it."""
        event = self._call.event(line)
        if "token" in event:
            self._count += 1
            if self._count > self._config.max_tokens:
                raise self._call.nonsense(checking.too_many(self._config))
            return [self._call.token(event["token"])]
        if "end" in event:
            end = self._call.end(event["end"])
            self._metrics, self.reason = end.metrics, end.finish_reason or "stop"
        if "error" in event:
            error = failures.from_wire(self._call.connection.address, event["error"])
            raise of_this_side(error, self._config, self._call.connection.address)
        if "end" not in event:
            raise self._call.nonsense(f"an event of {sorted(event)}")
        return []

    def watch(self, exchange: Exchange, cancel: CancelToken) -> None:
        """Have the server end the call once the cancel is set."""

        def look() -> bool:
            over = cancel.is_set()
            if over:
                self._call.stop()
            return over

        self._call.connection.watch(exchange, look)

    def stop(self) -> bool:
        """Have the server end the call and report its metrics."""
        self._call.stop()
        return True

    def metrics(self, clock: RequestClock, given: int) -> GenerateMetrics:
        """Return the server's metrics, with the time measured here."""
        return in_time(self._metrics, clock)

    def check_usable(self) -> None:
        """Raise `core.ModelClosedError` if the connection is closed."""
        self._call.connection.check_usable()


def of_this_side(error: CoreError, config: GenerateConfig, address: Address) -> CoreError:
    """Return the server's error as it applies to the caller.

    A timeout gets the seconds of the request, of which the server got the rest. A cancel that was
    not set here is the server's: to the caller, the request failed.
    """
    if isinstance(error, GenerationTimeout) and config.timeout is not None:
        return GenerationTimeout(config.timeout)
    set_here = config.cancel is not None and config.cancel.is_set()
    if isinstance(error, GenerationCancelled) and not set_here:
        return failures.stopped_there(address, error)
    return error


def in_time(metrics: GenerateMetrics, clock: RequestClock) -> GenerateMetrics:
    """Return the server's metrics, with the total time as measured here."""
    return replace(metrics, total_seconds=max(clock.seconds, metrics.total_seconds))


def _sound(stops: Sequence[str]) -> tuple[str, ...]:
    """Return the stop strings that can occur in a text: those without lone surrogates."""
    return tuple(text for text in stops if _has_utf8(text))


def _has_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
