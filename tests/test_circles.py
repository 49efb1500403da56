"""No circles among the modules of a distribution: imports for types and inside functions count."""

from __future__ import annotations

from collections.abc import Container
from functools import cache
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

from tools.house import CONVENIENCES, HOUSES


@cache
def graph() -> grimp.ImportGraph:
    """Every import of the code, those for types included."""
    return grimp.build_graph(*HOUSES, exclude_type_checking_imports=False, cache_dir=None)


def circle_of(package: str, allowed: Container[tuple[str, str]] = CONVENIENCES) -> list[str]:
    """Return the modules of one circle in a package, the first again at the end; or nothing."""
    modules = {package} | graph().find_descendants(package)
    imports = {
        module: {
            other
            for other in graph().find_modules_directly_imported_by(module)
            if other in modules and (module, other) not in allowed
        }
        for module in modules
    }
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.whole
@pytest.mark.parametrize("package", sorted(HOUSES))
def test_no_module_imports_itself_by_way_of_others(package: str) -> None:
    assert circle_of(package) == []


@pytest.mark.whole
@pytest.mark.parametrize("convenience", sorted(CONVENIENCES))
def test_a_circle_is_found(convenience: tuple[str, str]) -> None:
    assert {*convenience} <= {*circle_of("core_tasks", CONVENIENCES - {convenience})}
