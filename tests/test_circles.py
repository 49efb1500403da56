"""No circles among the modules of a distribution: imports for types and inside functions count."""

from __future__ import annotations

import importlib.util
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
_SPEC = importlib.util.spec_from_file_location("house", ROOT / "tools" / "house.py")
assert _SPEC is not None
assert _SPEC.loader is not None
house = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(house)

ALLOWED = {
    # Methods of a task that call a function made for it: its file needs no other to be read.
    ("core_tasks.task", "core_tasks.files"),
    ("core_tasks.task", "core_tasks.fitting"),
}
"""Imports that may close a circle."""


@cache
def graph() -> grimp.ImportGraph:
    """Every import of the code, those for types included."""
    return grimp.build_graph(*house.HOUSES, exclude_type_checking_imports=False)


def circle_of(package: str) -> list[str]:
    """Return the modules of one circle in a package, the first again at the end; or nothing."""
    modules = {package} | graph().find_descendants(package)
    imports = {
        module: {
            other
            for other in graph().find_modules_directly_imported_by(module)
            if other in modules and (module, other) not in ALLOWED
        }
        for module in modules
    }
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.whole
@pytest.mark.parametrize("package", sorted(house.HOUSES))
def test_no_module_imports_itself_by_way_of_others(package: str) -> None:
    assert circle_of(package) == []
