"""What ``core`` exports: pinned by name, so that a name can be added but never lost.

The names are those of the committed listing of signatures. After an addition, write that and the
stub anew with ``CORE_WRITE_SIGNATURES=1 python -m pytest tests/test_p*.py``.
"""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path

import pytest

import core
import core_tasks

ROOT = Path(core.__file__).parent
STUB = ROOT / "__init__.pyi"
LISTING = (Path(__file__).parent / "data" / "public_signatures.txt").read_text()
# Its lines without a dot before the first bracket or blank: a class, a function, a value.
PUBLIC = re.findall(r"^(?:class )?(\w+)(?=[( ])", LISTING, flags=re.MULTILINE)


def test_the_public_names_are_these() -> None:
    assert sorted(core.__all__) == PUBLIC
    assert len(PUBLIC) > 70


@pytest.mark.parametrize("name", PUBLIC)
def test_each_name_is_its_home_modules(name: str) -> None:
    value = getattr(core, name)
    home = getattr(value, "__module__", "core.protocols")  # the version is a plain number
    assert getattr(importlib.import_module(home), name) is value


def test_every_error_is_public() -> None:
    errors = importlib.import_module("core.errors")
    names = {name for name, value in vars(errors).items() if isinstance(value, type)}
    defined = {name for name in names if getattr(errors, name).__module__ == "core.errors"}
    assert defined <= set(core.__all__)


def test_dir_and_star_show_them() -> None:
    assert set(PUBLIC) <= set(dir(core))
    namespace: dict[str, object] = {}
    exec("from core import *", namespace)
    assert set(PUBLIC) <= namespace.keys()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'core' has no attribute 'load_modle'") as caught:
        getattr(core, "load_modle")  # noqa: B009 - mypy would see it otherwise
    # What Python's "Did you mean" goes by.
    assert (caught.value.name, caught.value.obj) == ("load_modle", core)


@pytest.mark.parametrize("name", core_tasks.__all__)
def test_a_name_that_core_tasks_has_now_says_so(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"core\.{name} is core_tasks\.{name} now"):
        getattr(core, name)
    assert getattr(core_tasks, name).__module__.startswith("core_tasks.")


@pytest.mark.parametrize(
    ("module", "new"),
    [
        ("core.serving.owner", "core_runtime"),
        ("core.wires.reading", "core_wires"),
        ("core.tasks.task", "core_tasks"),
        ("core.calibration", "core_tasks"),
        ("core.agreement", "core_tasks"),
        ("core.tuning", "core_tasks"),
        ("core.evaluation.items", "core_tasks"),
        ("core.cli", "core_cli"),
        ("core.benchmarking", "core_cli"),
    ],
)
def test_a_package_that_left_core_says_where_it_is(module: str, new: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"has moved to {new}, of the distribution"):
        importlib.import_module(module)


def test_typed_for_its_users() -> None:
    assert (ROOT / "py.typed").is_file()


def test_type_checkers_see_what_there_is_at_run_time() -> None:
    text = stub()
    if os.environ.get("CORE_WRITE_SIGNATURES"):
        STUB.write_text(text)
    assert text == STUB.read_text()


def stub() -> str:
    """``core/__init__.pyi``: "import X as X" hands a name on to strict checkers (PEP 484)."""
    lines = ['"""What type checkers see of `core`; made by tests/test_public_names.py."""', ""]
    lines += ["from core import aio as aio", "from core import testing as testing"]
    for module, names in vars(core)["_HOMES"].items():
        lines += [f"from {module} import {name} as {name}" for name in names.split()]

    # A star import goes by a literal list; constants first, then classes, as ruff sorts it.
    ranked = sorted(core.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    lines += ["", "__version__: str", "__all__ = ["]
    return "\n".join([*lines, *(f'    "{name}",' for name in ranked), "]", ""])
