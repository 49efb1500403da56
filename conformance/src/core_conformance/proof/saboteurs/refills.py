"""Saboteurs that leave something of a row in its slot, for the row that gets the slot next."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from core.types import Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.batch import Batch
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.sampling import penalised
from core_conformance.reference.stream import ReferenceStream


class UsedSlots(Batch):
    """A batch whose rows inherit from the row that had their slot before.

    So do only those that are the third in their slot: few rows in many slots are right.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._used: list[int] = []

    def _prefilled(self, row: int) -> list[int]:
        ids = super()._prefilled(row)
        ended = [slot for slot, other in self.rows.items() if other.reason is not None]
        free = [slot for slot in ended if slot not in self._used]
        if ids and free:
            self._used.append(free[0])
            if len(self._used) > self._engine.slots.count:
                self.inherits(self.rows[row], self.rows[free[0]])
        return ids

    def inherits(self, row: Generation, before: Generation) -> None:
        """Leave something of the row before in the row that gets its slot."""
        raise NotImplementedError


class Inherits(Generation):
    """A row that may have heard of another one: what that had read, and how its text ended."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.heard: frozenset[int] = frozenset()
        self.tail = self.said = ""

    def take(self, logits: Sequence[float]) -> list[Token]:
        heard = self.heard.difference(self.context)
        tokens = super().take(penalised(logits, heard, self.config.repeat_penalty))
        self.said += "".join(token.text for token in tokens)
        joined = (self.tail + self.said)[: len(self.tail) + 2]
        if self.reason is None and any(stop in joined for stop in self.config.stop):
            return tokens + self._end("stop")
        return tokens


class Hearing(Engine):
    """An engine of such rows."""

    generation_class = Inherits


class PenaltyOfBeforeBatch(UsedSlots):
    """Does not empty what the penalty has seen."""

    def inherits(self, row: Generation, before: Generation) -> None:
        """Takes over the tokens of the row before."""
        assert isinstance(row, Inherits)
        row.heard = frozenset(before.context)


@saboteur(
    "penalty-of-before",
    "in a slot that is used again, the penalty has seen the tokens of the row before",
)
class PenaltyOfBefore(ReferenceModel):
    engine_class = Hearing
    batch_class = PenaltyOfBeforeBatch


class StopOfBeforeBatch(UsedSlots):
    """Does not empty the text that stop strings are looked for in."""

    def inherits(self, row: Generation, before: Generation) -> None:
        """Takes over the end of the text of the row before."""
        assert isinstance(row, Inherits)
        assert isinstance(before, Inherits)
        row.tail = before.said[-2:]


@saboteur(
    "stop-of-before",
    "in a slot that is used again, a stop string may begin in the text of the row before",
)
class StopOfBefore(ReferenceModel):
    engine_class = Hearing
    batch_class = StopOfBeforeBatch


@saboteur(
    "seed-of-the-slot",
    "in a slot that is used again, random numbers continue where the row before left them",
)
class SeedOfTheSlot(UsedSlots):
    def inherits(self, row: Generation, before: Generation) -> None:
        row.random = before.random


class Waits(ReferenceStream):
    """A stream that inherits from the one that ran last, if it has to wait for a slot."""

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        slots = self.engine.slots
        waits = slots.count > 1 and len(slots._holders) >= slots.count
        before = self.engine.__dict__.get("ran_last", row)
        self.engine.__dict__["ran_last"] = row
        if waits:
            self.inherits(row, before)
        yield from super().generate(row, meter)

    def inherits(self, row: Generation, before: Generation) -> None:
        """Take something of the row before."""
        raise NotImplementedError


@saboteur(
    "limit-of-before", "a request that waited for its slot has the max_tokens of the one before it"
)
class LimitOfBefore(Waits):
    def inherits(self, row: Generation, before: Generation) -> None:
        row.limit = before.limit


@saboteur(
    "logprobs-of-before",
    "a request that waited for its slot tells logprobs if the one before it was asked for them",
)
class LogprobsOfBefore(Waits):
    def inherits(self, row: Generation, before: Generation) -> None:
        reports = before.config.return_logprobs
        row.config = dataclasses.replace(row.config, return_logprobs=reports)
