"""Results of checks, and the verdict on a backend that they come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from core_conformance.checking.subject import OPERATIONS

Kind = Literal["conformant", "not conformant", "incomplete"]


class Status(StrEnum):
    """The ways in which a check can end."""

    PASSED = "passed"
    FAILED = "failed"
    KNOWN = "known failure"  # failed, and the table of known failures says why
    FIXED = "fixed"  # passed, and the table of known failures says that it fails
    CRASHED = "crashed"  # the interpreter died in it
    TIMEOUT = "timeout"  # it did not end within the limit
    NOT_TESTABLE = "not testable"  # the model has nothing that it could look at
    NOT_RUN = "not run"

    @property
    def counts_against(self) -> bool:
        """True for an end that makes a backend not conformant."""
        return self in (Status.FAILED, Status.FIXED, Status.CRASHED)

    @property
    def judged(self) -> bool:
        """True when the check came to an end, good or bad."""
        return self not in (Status.TIMEOUT, Status.NOT_TESTABLE, Status.NOT_RUN)


@dataclass(frozen=True, slots=True)
class Result:
    """The status of one check, the reason for it, and the seconds that it took.

    ``refused`` is the capability that the backend does not declare, or the option that it cannot
    honour, and whose refusal was checked instead; empty when the check itself ran. ``details`` is
    a traceback, or a process's last words. ``call``: the calls that led to a failure, as Python
    that can be pasted. ``compared`` counts what the check compared, and
    ``left_out`` says what it did not look at for lack of passes (`checking.budget`). ``since``: the
    protocol version from which on its clause counts, in a report.
    """

    id: str
    status: Status
    reason: str = ""
    seconds: float = 0.0
    refused: str = ""
    details: str = ""
    compared: int = 0
    left_out: tuple[str, ...] = ()
    call: str = ""
    since: int = 0


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
    """Return the verdict on a backend to which the checks ``ids`` apply.

    A violation outweighs what is missing: however the rest would end, it stays. ``offers``:
    whether the backend declares one of `OPERATIONS`; without any, nothing was checked.
    """
    statuses = [results[id].status if id in results else Status.NOT_RUN for id in ids]
    count = Counter(statuses)

    bad = sum(status.counts_against for status in statuses)
    ran = _ran(count, sum(status.judged for status in statuses), len(statuses))

    # Violations first, then what was not looked at.
    if bad:
        kind, text = _not_conformant(bad, ran)
    elif ran or not statuses:
        kind, text = "incomplete", f"incomplete ({ran or '0 of 0 ran'})"
    elif not offers:
        kind, text = "incomplete", f"incomplete (it offers none of {', '.join(OPERATIONS)})"
    else:
        kind, text = _conformant(count[Status.KNOWN])

    hung = [id for id in ids if id in results and results[id].status is Status.TIMEOUT]
    if hung:
        text += f"; did not end: {', '.join(hung)}"
    return Verdict(kind, text, count[Status.PASSED], len(statuses), count[Status.KNOWN])


def _ran(count: Counter[Status], judged: int, total: int) -> str:
    """Return the number of checks that came to an end, in words; empty when all did."""
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
