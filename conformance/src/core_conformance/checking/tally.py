"""Counts of what the running check has compared, and of what it left out.

A check that compared nothing has certified nothing. One check runs at a time in a process, on
whatever threads.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """``compared`` counts comparisons; ``left_out`` describes the cases that were skipped."""

    compared: int = 0
    left_out: list[str] = field(default_factory=list)


_current = Tally()


def begin() -> Tally:
    """Return a new tally, for the check that begins."""
    global _current
    _current = Tally()
    return _current


def compared(count: int = 1) -> None:
    """Count things that the check compared."""
    _current.compared += count


def left_out(what: str) -> None:
    """Record a case that the check skips with this model, on this machine."""
    _current.left_out.append(what)
