"""The contract's signatures, held against a committed listing.

A signature of the contract never changes. After an addition, write the listing anew with::

    CORE_WRITE_SIGNATURES=1 python -m pytest tests/test_protocol_signatures.py

and read its diff: a line that changed or went away breaks somebody's backend.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, is_typeddict

import core

LISTING = Path(__file__).parent / "data" / "public_signatures.txt"
INHERITED = {"__init__", "__enter__", "__exit__"}  # special methods that are part of it


def test_public_signatures_are_as_committed() -> None:
    text = listing()
    if os.environ.get("CORE_WRITE_SIGNATURES"):
        LISTING.write_text(text)
    assert text == LISTING.read_text()


def test_the_listing_sees_members_defaults_and_kinds() -> None:
    text = listing()
    assert "Backend.load_model(self, path: str | os.PathLike[str], config: LoadConfig)" in text
    assert "config: GenerateConfig | None = None, /, **options: Unpack[ClassifyOptions]" in text
    assert "GenerateConfig.max_tokens: int = 256" in text
    assert "Backend.formats: frozenset[str] (property)" in text
    assert "Capability.CLASSIFY = 'classify'" in text
    assert "PROTOCOL_VERSION = 1" in text


def listing() -> str:
    lines = [line for name in sorted(core.__all__) for line in described(name)]
    return "\n".join(lines) + "\n"


def described(name: str) -> Iterator[str]:
    value: Any = getattr(core, name)
    if inspect.isfunction(value):
        yield name + signature(value)
    elif not isinstance(value, type):
        yield f"{name} = {value!r}"
    else:
        yield f"class {name}({', '.join(base.__name__ for base in value.__bases__)})"
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


def field(item: dataclasses.Field[Any]) -> str:
    default = "" if item.default is dataclasses.MISSING else f" = {item.default!r}"
    if item.default_factory is not dataclasses.MISSING:
        default = f" = {getattr(item.default_factory, '__name__', '?')}()"
    return f"{item.name}: {item.type}{default}"


def methods(cls: type) -> Iterator[str]:
    for name, value in sorted(vars(cls).items()):
        if name.startswith("_") and name not in INHERITED:
            continue
        if isinstance(value, property):
            assert value.fget
            yield f"{name}: {value.fget.__annotations__['return']} (property)"
        elif inspect.isfunction(value) and value.__module__.startswith("core."):
            yield name + signature(value)


def signature(function: Any) -> str:
    """Like `inspect.signature`, whose text differs between versions of Python."""
    shown: list[str] = []
    kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
    for index, parameter in enumerate(inspect.signature(function).parameters.values()):
        stars: dict[Any, str] = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
        typed = f": {parameter.annotation}" if parameter.annotation is not parameter.empty else ""
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        shown.append(f"{stars.get(parameter.kind, '')}{parameter.name}{typed}{default}")
        if parameter.kind is parameter.POSITIONAL_ONLY and kinds[index + 1 :][:1] != [
            parameter.kind
        ]:
            shown.append("/")
    return f"({', '.join(shown)}) -> {function.__annotations__.get('return')}"
