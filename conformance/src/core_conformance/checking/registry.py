"""The registry of all checks, by id: ``@check`` puts a function in when its module is imported."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

from core_conformance import checks
from core_conformance.checking.check import Check, Need
from core_conformance.checking.subject import Subject

Run = Callable[[Subject], None]
_found: dict[str, Check] = {}


def check(
    id: str, clause: str, *needs: Need, since: int = 1, broad: bool = False
) -> Callable[[Run], Run]:
    """Register the function below as the check ``id``. ``clause`` is its MUST sentence."""

    def register(run: Run) -> Run:
        if id in _found:
            raise ValueError(f"two checks are called {id!r}")
        _found[id] = Check(id, clause, needs, since, run, broad)
        return run

    return register


@cache
def all_checks() -> Mapping[str, Check]:
    """Return every check, sorted by id."""
    for module in pkgutil.iter_modules(checks.__path__):
        importlib.import_module(f"{checks.__name__}.{module.name}")
    return MappingProxyType(dict(sorted(_found.items())))


def generated() -> tuple[Check, ...]:
    """Return the checks whose inputs a seed chooses."""
    return tuple(check for id, check in all_checks().items() if id.startswith("generated."))
