"""The contract's signatures, held against a committed listing.

After an addition, write the listing again with::

    CORE_WRITE_SIGNATURES=1 python -m pytest tests/test_protocol_signatures.py

tests/test_signature_growth.py says whether the addition breaks somebody's backend or program.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, is_typeddict

import pytest

import core
import core_tasks

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).parent / "data"
LISTING, AUTHORS_LISTING = DATA / "public_signatures.txt", DATA / "author_signatures.txt"
LISTINGS = {core: LISTING, core_tasks: DATA / "tasks_signatures.txt"}
# The table of the guide for authors: a module, and names of it.
GUIDE = (ROOT / "docs" / "write_a_backend.md").read_text("utf-8")
MODULES = {
    module: re.findall(r"`(\w+)`", names)
    for module, names in re.findall(r"^\| `(core[\w.]+)` \| (.*) \|$", GUIDE, flags=re.MULTILINE)
}
INHERITED = {"__init__", "__enter__", "__exit__"}  # special methods that are part of it


@pytest.mark.parametrize("package", LISTINGS, ids=lambda package: package.__name__)
def test_public_signatures_are_as_committed(package: ModuleType) -> None:
    text = listing(package)
    if os.environ.get("CORE_WRITE_SIGNATURES"):
        LISTINGS[package].write_text(text)
    assert text == LISTINGS[package].read_text()


def test_what_authors_may_import_is_as_committed() -> None:
    text = authors_listing()
    if os.environ.get("CORE_WRITE_SIGNATURES"):
        AUTHORS_LISTING.write_text(text)
    assert text == AUTHORS_LISTING.read_text()
    assert len(MODULES) > 10
    assert "class RequestClock" in text
    assert "resolve_classify(config: GenerateConfig | None, options: ClassifyOptions)" in text


@pytest.mark.parametrize(
    "source",
    [*(ROOT / "examples").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"],
    ids=lambda path: path.name,
)
def test_examples_import_what_authors_may(source: Path) -> None:
    text = source.read_text("utf-8")
    for module, names in re.findall(r"^from (core\.[\w.]+) import ([\w, ]+)$", text, re.MULTILINE):
        private = set(names.split(", ")) - {*MODULES.get(module, ()), *core.__all__}
        private = {name for name in private if f"{module}.{name}" not in MODULES}
        assert not private or module in FOR_PROGRAMS, f"{source.name}: {module} {private}"


FOR_PROGRAMS = (
    "core_tasks.agreement",
    "core_tasks.calibration",
    "core_wires",
    "core_wires.reading",
)


def test_the_listing_sees_members_defaults_and_kinds() -> None:
    text = listing(core)
    assert "Backend.load_model(self, path: str | os.PathLike[str], config: LoadConfig)" in text
    assert "config: GenerateConfig | None = None, /, **options: Unpack[ClassifyOptions]" in text
    assert "GenerateConfig.max_tokens: int = 256" in text
    assert "Backend.formats: frozenset[str] (property)" in text
    assert "Capability.CLASSIFY = 'classify'" in text
    assert "PROTOCOL_VERSION = 2" in text


def listing(package: ModuleType) -> str:
    names = sorted(package.__all__)
    lines = [line for name in names for line in described(name, getattr(package, name))]
    return "\n".join([*lines, ""])


def authors_listing() -> str:
    lines: list[str] = []
    for module, names in MODULES.items():
        values = vars(importlib.import_module(module))
        lines += [line for name in sorted(names) for line in described(name, values[name])]
    return "\n".join([*lines, ""])


def described(name: str, value: Any) -> Iterator[str]:
    if inspect.isfunction(value):
        yield name + signature(value)
    elif not isinstance(value, type):
        yield f"{name} = {sorted(value) if isinstance(value, frozenset) else value!r}"
    else:
        kind = " keyword-only" if keyword_only(value) else ""
        yield f"class {name}({', '.join(base.__name__ for base in value.__bases__)}){kind}"
        yield from (f"{name}.{line}" for line in members(value))


def members(cls: type) -> Iterator[str]:
    if is_typeddict(cls):
        for name, kind in cls.__annotations__.items():
            yield f"{name}: {getattr(kind, '__forward_arg__', kind)}"
    elif issubclass(cls, enum.Enum):
        yield from (f"{member.name} = {member.value!r}" for member in cls)
    elif dataclasses.is_dataclass(cls):
        yield from map(field, dataclasses.fields(cls))
        yield from (line for line in methods(cls) if not line.startswith("__init__"))
    else:
        yield from methods(cls)


def keyword_only(cls: type) -> bool:
    return dataclasses.is_dataclass(cls) and all(item.kw_only for item in dataclasses.fields(cls))


def field(item: dataclasses.Field[Any]) -> str:
    default = "" if item.default is dataclasses.MISSING else f" = {item.default!r}"
    if item.default_factory is not dataclasses.MISSING:
        default = f" = {getattr(item.default_factory, '__name__', '?')}()"
    return f"{item.name}: {item.type}{default}"


def methods(cls: type) -> Iterator[str]:
    for name, value in sorted(own(cls).items()):
        if name.startswith("_") and name not in INHERITED:
            continue
        if isinstance(value, property):
            assert value.fget
            yield f"{name}: {value.fget.__annotations__['return']} (property)"
        elif inspect.isfunction(value) and value.__module__.startswith(("core.", "core_tasks.")):
            yield name + signature(value)


def own(cls: type) -> dict[str, Any]:
    """Return the members of a class, with those of its bases that are not public themselves."""
    public = {*core.__all__, *core_tasks.__all__}
    bases = [
        base
        for base in cls.__mro__
        if base is cls
        or (base.__module__.startswith(("core.", "core_tasks.")) and base.__name__ not in public)
    ]
    return {name: value for base in reversed(bases) for name, value in vars(base).items()}


def shown_default(value: Any) -> str:
    return value.__name__ if inspect.isfunction(value) else repr(value)


def signature(function: Any) -> str:
    """Like `inspect.signature`, whose text differs between versions of Python."""
    shown: list[str] = []
    kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
    for index, parameter in enumerate(inspect.signature(function).parameters.values()):
        stars: dict[Any, str] = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.KEYWORD_ONLY not in kinds[:index]:
            shown += [] if parameter.VAR_POSITIONAL in kinds[:index] else ["*"]
        typed = f": {parameter.annotation}" if parameter.annotation is not parameter.empty else ""
        default = (
            "" if parameter.default is parameter.empty else f" = {shown_default(parameter.default)}"
        )
        shown.append(f"{stars.get(parameter.kind, '')}{parameter.name}{typed}{default}")
        if parameter.kind is parameter.POSITIONAL_ONLY and kinds[index + 1 :][:1] != [
            parameter.kind
        ]:
            shown.append("/")
    return f"({', '.join(shown)}) -> {function.__annotations__.get('return')}"
