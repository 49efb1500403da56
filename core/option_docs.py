"""Lists of options in the docstrings of functions, so that ``help(model.classify)`` shows them.

They are derived from the annotation of the keywords, ``**options: Unpack[GenerateOptions]``, and so
are never out of date in any backend.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, TypeVar

from core.options import (
    ChatOptions,
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    LoadConfig,
    LoadOptions,
    RequestOptions,
    TemplateOptions,
)

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=type)

_KINDS = {
    kind.__name__: (kind, config)
    for kind, config in (
        (RequestOptions, GenerateConfig),
        (GenerateOptions, GenerateConfig),
        (ChatOptions, GenerateConfig),
        (TemplateOptions, GenerateConfig),
        (ClassifyOptions, GenerateConfig),
        (LoadOptions, LoadConfig),
    )
}
_WIDTH = 90
_MARK = "Options, with their defaults:"


def options_named(function: F) -> F:
    """Add the options that a function takes to its docstring, and return the function."""
    doc, kind = function.__doc__, _kind(function)
    if doc and kind and _MARK not in doc:  # under -OO there is none
        margin = min(re.findall(r"\n( *)\S", doc), key=len, default="")
        paragraph = textwrap.indent(_paragraph(kind), margin)
        function.__doc__ = f"{doc.rstrip()}\n\n{paragraph}\n"
    return function


def all_options_named(cls: T) -> T:
    """Do `options_named` for every method of a class, also inherited ones; return the class."""
    for base in cls.__mro__:
        for value in vars(base).values():
            if isinstance(value, FunctionType):
                options_named(value)
    return cls


def _kind(function: Callable[..., Any]) -> str | None:
    """Return the name of the options type in the annotation of the function's keywords."""
    for annotation in function.__annotations__.values():
        match = re.search(r"Unpack\[(?:\w+\.)*(\w+)\]", str(annotation))
        if match and match[1] in _KINDS:
            return match[1]
    return None


@cache
def _paragraph(name: str) -> str:
    kind, config = _KINDS[name]
    known = [field for field in dataclasses.fields(config) if field.name in kind.__annotations__]
    options = ", ".join(f"{field.name}={_default(field)!r}" for field in known)
    text = f"{_MARK} {options}. See `core.{config.__name__}`."
    return "\n".join(textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False))


def _default(field: dataclasses.Field[Any]) -> object:
    factory = field.default_factory
    return field.default if factory is dataclasses.MISSING else factory()
