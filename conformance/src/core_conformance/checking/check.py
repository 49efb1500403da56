"""A check: one clause of the contract, its errors, its count of comparisons, and the registry.

``@check`` registers a function when its module is imported. A check that compared nothing has
certified nothing, so `must` counts. One check runs at a time in a process, on whatever threads.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from core.protocols import Capability
from core_conformance import checks

if TYPE_CHECKING:
    from core_conformance.checking.subject import Subject


Need: TypeAlias = Capability | tuple[Capability, ...]
"""A capability, or several of which any one will do."""

Run: TypeAlias = "Callable[[Subject], None]"


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
    run: Run
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


_checks: dict[str, Check] = {}


def check(
    id: str, clause: str, *needs: Need, since: int = 1, broad: bool = False
) -> Callable[[Run], Run]:
    """Register the function below as the check ``id``. ``clause`` is its MUST sentence."""

    def register(run: Run) -> Run:
        if id in _checks:
            raise ValueError(f"two checks are called {id!r}")
        _checks[id] = Check(id, clause, needs, since, run, broad)
        return run

    return register


@cache
def all_checks() -> Mapping[str, Check]:
    """Return every check, sorted by id."""
    for module in pkgutil.iter_modules(checks.__path__):
        importlib.import_module(f"{checks.__name__}.{module.name}")
    return MappingProxyType(dict(sorted(_checks.items())))


def generated() -> tuple[Check, ...]:
    """Return the checks whose inputs a seed chooses."""
    return tuple(check for id, check in all_checks().items() if id.startswith("generated."))


@dataclass(slots=True)
class Tally:
    """``compared`` counts comparisons; ``left_out`` describes the cases that were skipped."""

    compared: int = 0
    left_out: list[str] = field(default_factory=list)


_tally = Tally()


def begin_tally() -> Tally:
    """Return a new tally, for the check that begins."""
    global _tally
    _tally = Tally()
    return _tally


def count_compared(count: int = 1) -> None:
    """Count things that the check compared."""
    _tally.compared += count


def leave_out(case: str) -> None:
    """Record a case that the check skips with this model, on this machine."""
    _tally.left_out.append(case)


def must(condition: bool, otherwise: str) -> None:
    """Count one comparison, and raise `Violation` with these words unless the clause is kept."""
    count_compared()
    well_formed(condition, otherwise)


def well_formed(condition: bool, otherwise: str) -> None:
    """Raise `Violation` with these words unless an answer has the form that every answer has.

    The mere existence of an answer is not counted as a comparison.
    """
    if not condition:
        raise Violation(otherwise)


def testable(met: bool, otherwise: str) -> None:
    """Raise `NotTestable` with these words unless the model has what the check needs."""
    if not met:
        raise NotTestable(otherwise)
