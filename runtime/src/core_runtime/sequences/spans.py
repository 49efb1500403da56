"""Spans of tokens to run through the model, packed into batches as full as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from core.errors import CoreError, OutOfMemoryError
from core_runtime.sequences.session import (
    DecodeError,
    InterruptedPassError,
    Logits,
    ScarceMemoryError,
    Session,
)

Read = Callable[[int, Logits], None]


def _nothing(place: int, logits: Logits) -> None:
    """Ignore the logits of tokens that are only needed in the cache."""


class SpanReading:
    """A `Span` with a function that takes its logits.

    ``reads``: the logits of that many last tokens go to ``to``, with their indices in ``ids``.
    ``error``: the error of the span, if it failed.
    """

    def __init__(
        self,
        ids: Sequence[int],
        position: int,
        sequence: int,
        reads: int = 1,
        to: Read = _nothing,
    ) -> None:
        self.ids, self.position, self.sequence, self.reads = ids, position, sequence, reads
        self._to = to
        self.error: Exception | None = None

    def read(self, place: int, logits: Logits) -> None:
        """Take the logits after ``ids[place]``."""
        self._to(place, logits)

    def fail(self, error: Exception) -> None:
        """Record the error of a span that could not be computed or read."""
        self.error = error


class Span(Protocol):
    """Tokens that follow one another in a sequence; spans of one sequence come in order."""

    @property
    def ids(self) -> Sequence[int]:
        """The tokens of the span."""
        ...

    @property
    def position(self) -> int:
        """The position of the first token in the sequence."""
        ...

    @property
    def sequence(self) -> int:
        """The sequence that the tokens continue."""
        ...

    @property
    def reads(self) -> int:
        """The number of last tokens whose logits are read."""
        ...

    def read(self, place: int, logits: Logits) -> None:
        """Take the logits after the token ``ids[place]``, valid during this call."""
        ...

    def fail(self, error: Exception) -> None:
        """Take the error of a span that could not be computed, or read."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """Tokens ``start`` to before ``end`` of a span, in one batch."""

    span: Span
    start: int
    end: int

    @property
    def reads(self) -> int:
        """The number of tokens in the part whose logits are read."""
        return min(self.end - self.start, max(0, self.span.reads - len(self.span.ids) + self.end))


class SpanRunner:
    """A runner of spans in a session, on its thread."""

    def __init__(self, session: Session) -> None:
        self._session, self._batch = session, session.new_batch()
        self._hidden: tuple[int, ...] = ()

    def run(
        self,
        spans: Sequence[Span],
        between: Callable[[], None] | None = None,
        *,
        hidden: tuple[int, ...] = (),
    ) -> None:
        """Run all spans; deliver logits or errors as batches finish. ``between`` may raise to stop.

        ``between`` is called between two batches, and after an interrupted pass, which then runs
        again. Without it, an interrupted pass raises `InterruptedPassError`, and nothing of the
        pass is left in the cache. ``hidden``: states after these layers are delivered in place of
        logits, and every token of a span must be read.
        """
        self._hidden = hidden
        failed: set[int] = set()
        for parts in self._packed(spans):
            if between is not None:
                between()
            going = [part for part in parts if id(part.span) not in failed]
            self._compute(going, failed, between)

    def _packed(self, spans: Sequence[Span]) -> Iterator[list[Part]]:
        most, rows = self._session.n_batch, self._session.n_outputs_max
        parts: list[Part] = []
        room, outputs = most, rows

        # A span that does not fit continues in the next batch.
        for span in spans:
            done = 0
            while done < len(span.ids):
                part = _fitting(span, done, room, outputs)
                if part is not None:
                    parts.append(part)
                    done, room, outputs = part.end, room - (part.end - done), outputs - part.reads
                if done < len(span.ids):
                    yield parts
                    parts, room, outputs = [], most, rows
        if parts:
            yield parts

    def _compute(
        self, parts: Sequence[Part], failed: set[int], between: Callable[[], None] | None
    ) -> None:
        if not parts:
            return

        self._batch.clear()
        firsts = [self._add(part) for part in parts]
        try:
            self._decode(parts, between)
        except InterruptedPassError:
            raise
        except DecodeError as error:
            self._divide(parts, failed, error, between)
            return

        for part, first in zip(parts, firsts, strict=True):
            self._read(part, first, failed)

    def _decode(self, parts: Sequence[Part], between: Callable[[], None] | None) -> None:
        """Compute the batch, again whenever another request interrupts it."""
        decode: Callable[[Any], None] = self._session.decode
        if self._hidden:
            decode = partial(self._session.decode_hidden, layers=self._hidden)
        while True:
            try:
                decode(self._batch)
                return
            except InterruptedPassError:
                self._forget(parts)
                if between is None:
                    raise
                between()

    def _forget(self, parts: Sequence[Part]) -> None:
        """Drop the computed tokens of these parts, which are to be computed again."""
        for part in parts:
            self._session.drop(part.span.sequence, part.span.position + part.start)

    def _add(self, part: Part) -> int:
        span = part.span
        ids = span.ids[part.start : part.end]
        return self._batch.add(ids, span.position + part.start, span.sequence, part.reads)

    def _divide(
        self,
        parts: Sequence[Part],
        failed: set[int],
        error: DecodeError,
        between: Callable[[], None] | None,
    ) -> None:
        self._forget(parts)
        if len(parts) == 1:
            self._fail(parts[0], failed, error)
            return
        half = len(parts) // 2
        self._compute(parts[:half], failed, between)
        others = [part for part in parts[half:] if id(part.span) not in failed]
        self._compute(others, failed, between)

    def _read(self, part: Part, first: int, failed: set[int]) -> None:
        try:
            for offset in range(part.reads):
                logits = self._values(first + offset)
                part.span.read(part.end - part.reads + offset, logits)
        except Exception as error:  # noqa: BLE001 - of this span, not of the others
            self._fail(part, failed, error)

    def _values(self, index: int) -> Logits:
        return self._session.hidden(index) if self._hidden else self._session.logits(index)

    def _fail(self, part: Part, failed: set[int], error: Exception) -> None:
        failed.add(id(part.span))
        part.span.fail(_of_request(error, len(part.span.ids)))


def _of_request(error: Exception, tokens: int) -> Exception:
    """Return the error of a request, after the failure of a batch with its ``tokens`` alone."""
    if not isinstance(error, (ScarceMemoryError, MemoryError)) or isinstance(error, CoreError):
        return error
    return OutOfMemoryError(
        f"Out of memory for {tokens} tokens of this request ({error}). Shorten it, reduce n_batch, "
        "or close other models."
    )


def _fitting(span: Span, done: int, room: int, outputs: int) -> Part | None:
    """Return the next part of a span that fits in a batch; None if nothing fits."""
    end = min(len(span.ids), done + room)
    unread = len(span.ids) - span.reads  # up to here nothing is read
    end = min(end, max(done, unread) + outputs)
    return Part(span, done, end) if end > done else None
