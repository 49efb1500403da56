"""Saboteurs whose timeout is right when it is over at once, and wrong on the way or in line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from core.errors import GenerationTimeout
from core.kit.base import RequestClock
from core.types import Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.engine import Engine, Generation, Slots
from core_conformance.reference.meter import Meter
from core_conformance.reference.stream import ReferenceStream


@saboteur("timeout-in-tenths", "a timeout comes when a tenth of its time is over")
class TimeoutInTenths(Engine):
    """Mistakes the unit."""

    def check(self, row: Generation) -> None:
        """Raises too early, with the right number in the error."""
        super().check(row)
        timeout = row.config.timeout
        if timeout is not None and row.clock.seconds >= timeout / 10:
            raise GenerationTimeout(timeout)


@saboteur(
    "timed-out-prompt-kept",
    "what a timed-out stream has drawn stays in the cache, after its prompt",
)
class TimedOutPromptKept(ReferenceStream):
    """Gives the context of a stream that ran out of time to the next one with this prompt."""

    _kept: ClassVar[WeakKeyDictionary[Engine, dict[Sequence[int], list[int]]]] = WeakKeyDictionary()

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        """Yields the tokens of a row, after what a timed-out one has left."""
        prompt, contexts = row.prompt, self._kept.setdefault(self.engine, {})
        row.prompt = tuple(contexts.pop(prompt, prompt))
        try:
            yield from super().generate(row, meter)
        except GenerationTimeout:
            if row.drawn:
                contexts[prompt] = list(row.context)
            raise


@saboteur("timeout-from-the-slot", "a timeout begins when the request gets its slot")
class TimeoutFromTheSlot(ReferenceStream):
    """Starts the clock where the work begins."""

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        """Yields the tokens of a row, whose clock stands still while it waits."""
        engine, clock = self.engine, row.clock
        row.clock = RequestClock(type(row.config)(cancel=row.config.cancel))
        with engine.slots.taken(lambda: self._check(row)):
            row.clock = RequestClock(row.config) if clock.seconds > 0.01 else clock
            with engine.running([row]):
                engine.prefill(row, meter)
                while row.reason is None:
                    self._check(row)
                    yield from engine.step([row], meter)[0]


class Patient(Slots):
    """Slots for which one waits whatever happens."""

    def _acquire(self, me: int, check: Callable[[], None]) -> None:
        super()._acquire(me, _never)


def _never() -> None:
    """Raise nothing."""


@saboteur("deaf-in-line", "a request that waits for a slot is not stopped before it has one")
class DeafInLine(Engine):
    """Waits for a slot without looking."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.slots = Patient(self.slots.count)


class Ghosts(Slots):
    """Slots that keep a place for who has left the line."""

    @contextmanager
    def taken(self, check: Callable[[], None]) -> Iterator[None]:
        """Hold a slot; one who gives up holds it for good."""
        with super().taken(lambda: self._leaving(check)):
            yield

    def _leaving(self, check: Callable[[], None]) -> None:
        try:
            check()
        except Exception:
            self._holders.append(-1)
            raise


@saboteur(
    "place-in-line-kept", "who leaves the line while he waits keeps the slot that he would have had"
)
class PlaceInLineKept(Engine):
    """Hands a slot to a request that is not there any more."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.slots = Ghosts(self.slots.count)
