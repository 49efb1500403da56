"""A check: one clause of the contract, and the errors by which it reports what it finds."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from core.protocols import Capability
from core_conformance.checking import tally

if TYPE_CHECKING:
    from core_conformance.checking.subject import Subject


Need: TypeAlias = Capability | tuple[Capability, ...]
"""A capability, or several of which any one will do."""


class Violation(AssertionError):
    """The backend does not keep a clause; the message says what was seen instead.

    ``call``: the calls that lead to it, as Python; empty where those of the check tell (`record`).
    """

    def __init__(self, message: str, call: str = "") -> None:
        super().__init__(message)
        self.call = call


class NotTestable(BaseException):
    """With this model the check would look at nothing; the message says what model it takes.

    It says nothing against the backend. No ``except Exception`` takes it for the backend's error.
    """


@dataclass(frozen=True, slots=True)
class Check:
    """A clause of the contract, and the function that finds out whether a backend keeps it.

    ``run`` returns when the clause is kept and raises otherwise. ``needs``: what a backend must
    declare for it to apply; one that does not declare it has to refuse instead, which is checked
    in its place (`applies.refuses`). ``since``: the protocol version from which on it counts.
    ``broad``: it looks at many things at once (sizes, pairs of options, generated calls), so that
    it may fail a saboteur whose own clause is another.
    """

    id: str
    clause: str
    needs: tuple[Need, ...]
    since: int
    run: Callable[[Subject], None]
    broad: bool = False

    def missing(self, declared: Collection[Capability]) -> Capability | None:
        """Return the first capability that the check needs and that is not declared.

        None if it applies.

        Where any one of several would do and none is declared, it is the first of these.
        """
        for need in self.needs:
            several = (need,) if isinstance(need, Capability) else need
            if not any(one in declared for one in several):
                return several[0]
        return None


def must(kept: bool, otherwise: str) -> None:
    """Count one comparison, and raise `Violation` with these words unless the clause is kept."""
    tally.compared()
    well_formed(kept, otherwise)


def well_formed(kept: bool, otherwise: str) -> None:
    """Raise `Violation` with these words unless an answer has the form that every answer has.

    The mere existence of an answer is not counted as a comparison.
    """
    if not kept:
        raise Violation(otherwise)


def testable(met: bool, otherwise: str) -> None:
    """Raise `NotTestable` with these words unless the model has what the check needs."""
    if not met:
        raise NotTestable(otherwise)
