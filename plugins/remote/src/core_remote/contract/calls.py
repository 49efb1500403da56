"""Calls of core's own wire: their bodies, and what is made of the events that come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar
from uuid import uuid4

import msgspec

from core.clock import RequestClock
from core.errors import CoreError, GenerationCancelled, GenerationTimeout
from core.options import CancelToken, GenerateConfig
from core.types import FinishReason, GenerateMetrics, ModelInfo, Token
from core.wires.contract import PREFIX, Call, End, options_of
from core.wires.plain import plain, value_of
from core_remote import failures
from core_remote.address import Address
from core_remote.connection import Connection
from core_remote.contract import checking
from core_remote.exchange import Exchange

T = TypeVar("T")
Event = Mapping[str, Any]
_decoder = msgspec.json.Decoder()
_LEAST_SECONDS = 1e-9


class Asked:
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
        """Send it, with the time that is left of its timeout, for about ``most`` events.

        Raises `ModelClosedError`.
        """
        timeout = config.timeout
        if timeout is not None:
            timeout = max(_LEAST_SECONDS, timeout - clock.seconds)
        options = options_of(replace(config, timeout=timeout, stop=_sound(config.stop)))
        call = Call(self.connection.address.model, self.id, self.arguments, options)
        return self.connection.ask(PREFIX + self.operation, plain(call), most)

    def stop(self) -> None:
        """Have the server end the call as one whose cancel was set."""
        self.connection.tell(PREFIX + "cancel", plain(Call(id=self.id)))

    def event(self, line: bytes | None) -> Event:
        """The event of a line. Raises `core.BackendProcessError` for what is none, and for None."""
        if line is None:
            raise failures.died(self.connection.address)
        try:
            event = _decoder.decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise self.nonsense(f"{error} in {line[:80]!r}") from None
        if not isinstance(event, dict) or not event:
            raise self.nonsense(f"{line[:80]!r} is no event")
        return event

    def value(self, kind: type[T], data: object) -> T:
        """What an event holds. Raises `core.BackendProcessError`."""
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
        """Raise `core.BackendProcessError` for an answer in which something is wrong."""
        if wrong is not None:
            raise self.nonsense(wrong)

    def nonsense(self, what: str) -> Exception:
        """The error for what is no answer to this call."""
        return failures.nonsense(self.connection.address, f"{what}, in answer to {self.operation}")


class RowReader(Generic[T]):
    """Makes results of the events of a call over rows.

    ``metrics`` are the server's; ``results`` has what came, in order.
    """

    def __init__(self, asked: Asked, kind: type[T], rows: int) -> None:
        self._asked, self._kind, self._rows = asked, kind, rows
        self.results: list[T] = []
        self.metrics = GenerateMetrics()
        self.stopped: CoreError | None = None

    def feed(self, line: bytes | None) -> bool:
        """Take a line. True once the answer is whole. Raises the error of the call."""
        event = self._asked.event(line)
        if "result" in event:
            if len(self.results) == self._rows:
                raise self._asked.nonsense(f"more results than the {self._rows} rows")
            self.results.append(self._asked.value(self._kind, event["result"]))
            return False
        if "error" in event:
            raise failures.from_wire(self._asked.connection.address, event["error"])
        if "end" not in event:
            raise self._asked.nonsense(f"an event of {sorted(event)}")
        if len(self.results) != self._rows:
            raise self._asked.nonsense(f"{len(self.results)} results for {self._rows} rows")
        self.metrics = self._asked.end(event["end"]).metrics
        return True

    def stop(self, error: CoreError) -> bool:
        """Have the server end it; what it has come to then is the answer."""
        self.stopped = error
        self._asked.stop()
        return True


class ValueReader(Generic[T]):
    """Makes a value of the events of any other call."""

    def __init__(self, asked: Asked, kind: type[T]) -> None:
        self._asked, self._kind = asked, kind
        self.found: list[T] = []
        self.metrics = GenerateMetrics()
        self.stopped: CoreError | None = None

    def feed(self, line: bytes | None) -> bool:
        """Take a line. True once the answer is whole. Raises the error of the call."""
        event = self._asked.event(line)
        if "error" in event:
            raise failures.from_wire(self._asked.connection.address, event["error"])
        if "value" in event and not self.found:
            self.found.append(self._asked.value(self._kind, event["value"]))
            return False
        if "end" not in event or not self.found:
            raise self._asked.nonsense(f"an event of {sorted(event)}")
        self.metrics = self._asked.end(event["end"]).metrics
        return True

    def stop(self, error: CoreError) -> bool:
        """Have the server end it. There is nothing to wait for."""
        self.stopped = error
        self._asked.stop()
        return False


class StreamWire:
    """A stream of core's own wire, for `core_remote.stream.RemoteStream`."""

    def __init__(
        self, asked: Asked, config: GenerateConfig, wrong: CoreError | None = None
    ) -> None:
        self._asked, self._config, self._wrong = asked, config, wrong
        self._found = GenerateMetrics()
        self._count = 0
        self.reason: FinishReason | None = None

    def begin(self, clock: RequestClock) -> Exchange:
        """Send it. Raises what is wrong with the prompt."""
        if self._wrong is not None:
            raise self._wrong
        return self._asked.send(self._config, clock, self._config.max_tokens)

    @property
    def over(self) -> bool:
        """True once the server has said why it ended."""
        return self.reason is not None

    def feed(self, line: bytes | None) -> list[Token]:
        """The token of a line. Raises the error that it holds."""
        event = self._asked.event(line)
        if "token" in event:
            self._count += 1
            if self._count > self._config.max_tokens:
                raise self._asked.nonsense(checking.too_many(self._config))
            return [self._asked.token(event["token"])]
        if "end" in event:
            end = self._asked.end(event["end"])
            self._found, self.reason = end.metrics, end.finish_reason or "stop"
        if "error" in event:
            error = failures.from_wire(self._asked.connection.address, event["error"])
            raise of_this_side(error, self._config, self._asked.connection.address)
        if "end" not in event:
            raise self._asked.nonsense(f"an event of {sorted(event)}")
        return []

    def watch(self, exchange: Exchange, cancel: CancelToken) -> None:
        """Have the server end it once the cancel is set."""

        def look() -> bool:
            over = cancel.is_set()
            if over:
                self._asked.stop()
            return over

        self._asked.connection.watch(exchange, look)

    def stop(self) -> bool:
        """Have the server end it, and say what it came to."""
        self._asked.stop()
        return True

    def metrics(self, clock: RequestClock, given: int) -> GenerateMetrics:
        """The server's, in this side's time."""
        return in_time(self._found, clock)

    def check_usable(self) -> None:
        """Raise `core.ModelClosedError` where nothing can be asked any more."""
        self._asked.connection.check_usable()


def of_this_side(error: CoreError, config: GenerateConfig, address: Address) -> CoreError:
    """Return the error as this side has it.

    A timeout is that of the request, of which the server got what was left. A cancel that was not
    set here is the server's: to the caller it is a request that failed.
    """
    if isinstance(error, GenerationTimeout) and config.timeout is not None:
        return GenerationTimeout(config.timeout)
    set_here = config.cancel is not None and config.cancel.is_set()
    if isinstance(error, GenerationCancelled) and not set_here:
        return failures.stopped_there(address, error)
    return error


def in_time(metrics: GenerateMetrics, clock: RequestClock) -> GenerateMetrics:
    """Metrics of the server, with the total as it was on this side."""
    return replace(metrics, total_seconds=max(clock.seconds, metrics.total_seconds))


def _sound(stops: Sequence[str]) -> tuple[str, ...]:
    """The stop strings that a text can hold: one with lone surrogates is in none."""
    return tuple(each for each in stops if _has_utf8(each))


def _has_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
