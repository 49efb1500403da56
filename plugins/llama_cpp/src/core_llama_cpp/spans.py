"""Runs of tokens on their way through the model, packed into batches as full as they go.

What goes wrong in a batch is looked for in its halves, down to the span that it concerns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from core_llama_cpp.session import DecodeError, Logits, Session


class Span(Protocol):
    """Tokens of one sequence that follow one another. Those of one sequence come in order."""

    @property
    def ids(self) -> Sequence[int]:
        """The tokens."""
        ...

    @property
    def position(self) -> int:
        """Where the first of them stands."""
        ...

    @property
    def sequence(self) -> int:
        """The sequence that they continue."""
        ...

    @property
    def reads(self) -> int:
        """How many tokens' logits are wanted: the last ones'."""
        ...

    def read(self, place: int, logits: Logits) -> None:
        """Take the logits behind the token ``ids[place]``; they are good during this call."""
        ...

    def fail(self, error: Exception) -> None:
        """It could not be computed, or read."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """Tokens ``start`` to before ``end`` of a span, in one batch."""

    span: Span
    start: int
    end: int

    @property
    def reads(self) -> int:
        """How many of its tokens' logits are wanted."""
        return min(self.end - self.start, max(0, self.span.reads - len(self.span.ids) + self.end))


class Runner:
    """Runs spans in a session; on its thread."""

    def __init__(self, session: Session) -> None:
        self._session, self._batch = session, session.new_batch()

    def run(self, spans: Sequence[Span], between: Callable[[], None] = lambda: None) -> None:
        """All of them, read and failed as it goes; ``between`` two batches may raise."""
        failed: set[int] = set()
        for parts in self._packed(spans):
            between()
            going = [part for part in parts if id(part.span) not in failed]
            self._compute(going, failed)

    def _packed(self, spans: Sequence[Span]) -> Iterator[list[Part]]:
        most, rows = self._session.n_batch, self._session.settings.n_outputs_max
        parts: list[Part] = []
        room, outputs = most, rows
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

    def _compute(self, parts: Sequence[Part], failed: set[int]) -> None:
        if not parts:
            return
        self._batch.clear()
        firsts = [self._add(part) for part in parts]
        try:
            self._session.decode(self._batch)
        except DecodeError as error:
            self._divide(parts, failed, error)
            return
        for part, first in zip(parts, firsts, strict=True):
            self._read(part, first, failed)

    def _add(self, part: Part) -> int:
        span = part.span
        ids = span.ids[part.start : part.end]
        return self._batch.add(ids, span.position + part.start, span.sequence, part.reads)

    def _divide(self, parts: Sequence[Part], failed: set[int], error: DecodeError) -> None:
        for part in parts:  # what was computed of them is computed again
            self._session.drop(part.span.sequence, part.span.position + part.start)
        if len(parts) == 1:
            self._fail(parts[0], failed, error)
            return
        half = len(parts) // 2
        self._compute(parts[:half], failed)
        self._compute([part for part in parts[half:] if id(part.span) not in failed], failed)

    def _read(self, part: Part, first: int, failed: set[int]) -> None:
        try:
            for offset in range(part.reads):
                logits = self._session.logits(first + offset)
                part.span.read(part.end - part.reads + offset, logits)
        except Exception as error:  # noqa: BLE001 - of this span, not of the others
            self._fail(part, failed, error)

    def _fail(self, part: Part, failed: set[int], error: Exception) -> None:
        failed.add(id(part.span))
        part.span.fail(error)


def _fitting(span: Span, done: int, room: int, outputs: int) -> Part | None:
    """As much of a span, behind what is done, as a batch has room for; None for nothing."""
    end = min(len(span.ids), done + room)
    unread = len(span.ids) - span.reads  # up to here nothing is read
    end = min(end, max(done, unread) + outputs)
    return Part(span, done, end) if end > done else None
