"""What a check is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.capability import Capability

if TYPE_CHECKING:
    from core_conformance.subject import Subject


class Violation(AssertionError):
    """The backend does not keep a clause; the message says what was seen instead."""


@dataclass(frozen=True, slots=True)
class Check:
    """One clause of the contract and the function that looks whether a backend keeps it.

    ``run`` returns when the clause is kept and raises otherwise. ``needs``: what a backend must
    declare for it to apply; one that does not declare it has to refuse instead, which is checked
    in its place (`refusals`). ``since``: the protocol version from which on it counts.
    """

    id: str
    clause: str
    needs: tuple[Capability, ...]
    since: int
    run: Callable[[Subject], None]


def must(kept: bool, otherwise: str) -> None:
    """Raise `Violation` with these words unless the clause is kept."""
    if not kept:
        raise Violation(otherwise)
