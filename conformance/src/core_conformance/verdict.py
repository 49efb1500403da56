"""What the results of a run say about a backend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from core_conformance.result import Result, Status

Kind = Literal["conformant", "not conformant", "incomplete"]


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


def verdict_of(ids: Collection[str], results: Mapping[str, Result]) -> Verdict:
    """The verdict on a backend to which the checks ``ids`` apply.

    A violation outweighs what is missing: however the rest would end, it stays.
    """
    statuses = [results[each].status if each in results else Status.NOT_RUN for each in ids]
    count = Counter(statuses)
    bad = [status for status in statuses if status.counts_against]
    judged = sum(status.judged for status in statuses)
    if bad:
        kind, text = _not_conformant(len(bad), judged, len(statuses))
    elif judged < len(statuses) or not statuses:
        kind, text = "incomplete", f"incomplete ({judged} of {len(statuses)} ran)"
    else:
        kind, text = _conformant(count[Status.KNOWN])
    hung = [each for each in ids if each in results and results[each].status is Status.TIMEOUT]
    if hung:
        text += f"; did not end: {', '.join(hung)}"
    return Verdict(kind, text, count[Status.PASSED], len(statuses), count[Status.KNOWN])


def _conformant(known: int) -> tuple[Kind, str]:
    if not known:
        return "conformant", "conformant"
    return "conformant", f"conformant with {known} known failure{'' if known == 1 else 's'}"


def _not_conformant(bad: int, judged: int, total: int) -> tuple[Kind, str]:
    part = f", {judged} of {total} ran" if judged < total else ""
    return "not conformant", f"not conformant ({bad} failed{part})"
