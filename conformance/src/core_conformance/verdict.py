"""What the results of a run say about a backend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from core.capability import Capability
from core_conformance.result import Result, Status

Kind = Literal["conformant", "not conformant", "incomplete"]
OPERATIONS = (
    Capability.GENERATE,
    Capability.CHAT,
    Capability.CLASSIFY,
    Capability.BATCH_GENERATE,
)
"""Of these a backend has to offer one: there is nothing to certify about refusals alone."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``text`` says it in one line. ``passed`` and ``total`` count checks."""

    kind: Kind
    text: str
    passed: int
    total: int
    known: int

    @property
    def certifiable(self) -> bool:
        """Conformant, with nothing left out and nothing excused."""
        return self.kind == "conformant" and not self.known


def verdict_of(ids: Collection[str], results: Mapping[str, Result], offers: bool = True) -> Verdict:
    """The verdict on a backend to which the checks ``ids`` apply.

    A violation outweighs what is missing: however the rest would end, it stays. ``offers``:
    whether the backend declares one of `OPERATIONS`; without any, nothing was looked at.
    """
    statuses = [results[each].status if each in results else Status.NOT_RUN for each in ids]
    count = Counter(statuses)
    bad = sum(status.counts_against for status in statuses)
    ran = _ran(count, sum(status.judged for status in statuses), len(statuses))
    if bad:
        kind, text = _not_conformant(bad, ran)
    elif ran or not statuses:
        kind, text = "incomplete", f"incomplete ({ran or '0 of 0 ran'})"
    elif not offers:
        kind, text = "incomplete", f"incomplete (it offers none of {', '.join(OPERATIONS)})"
    else:
        kind, text = _conformant(count[Status.KNOWN])
    hung = [each for each in ids if each in results and results[each].status is Status.TIMEOUT]
    if hung:
        text += f"; did not end: {', '.join(hung)}"
    return Verdict(kind, text, count[Status.PASSED], len(statuses), count[Status.KNOWN])


def _ran(count: Counter[Status], judged: int, total: int) -> str:
    """How many checks came to an end; empty when all did."""
    if judged == total:
        return ""
    mute = count[Status.NOT_TESTABLE]
    return f"{judged} of {total} ran" + (f", {mute} not testable with this model" if mute else "")


def _conformant(known: int) -> tuple[Kind, str]:
    if not known:
        return "conformant", "conformant"
    return "conformant", f"conformant with {known} known failure{'' if known == 1 else 's'}"


def _not_conformant(bad: int, ran: str) -> tuple[Kind, str]:
    return "not conformant", f"not conformant ({bad} failed{', ' + ran if ran else ''})"
