"""What the check that now runs has looked at, and what it left out.

A check that compared nothing has certified nothing. One check runs at a time in a process, on
whatever threads.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """``compared`` counts comparisons; ``left_out`` says in words what was not looked at."""

    compared: int = 0
    left_out: list[str] = field(default_factory=list)


_current = Tally()


def begin() -> Tally:
    """A new tally, for the check that begins."""
    global _current
    _current = Tally()
    return _current


def compared(count: int = 1) -> None:
    """Count things that the check compared."""
    _current.compared += count


def left_out(what: str) -> None:
    """Say what the check does not look at with this model, on this machine."""
    _current.left_out.append(what)
