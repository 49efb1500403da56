"""Checks of option values: each returns the plain value, or raises with what was expected."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import SupportsFloat, SupportsIndex, cast

from core.errors import InvalidOptionError, LabelError
from core.secret import Secret, checked_keys

_TEMPLATE_OWN = ("messages", "add_generation_prompt")


def integer(option: str, value: object, low: int, high: int | None = None) -> int:
    """Return an ``int`` in ``low..high``, from anything with ``__index__`` except a bool."""
    expected = f"an integer from {low} to {high}" if high is not None else f"an integer >= {low}"
    # int first: a check of a protocol takes 15 microseconds.
    if isinstance(value, bool) or not isinstance(value, (int, SupportsIndex)):
        raise InvalidOptionError(option, value, expected)
    try:
        number = operator.index(value)
    except TypeError:  # an array of numbers has the method, too
        raise InvalidOptionError(option, value, expected) from None
    if number < low or (high is not None and number > high):
        raise InvalidOptionError(option, value, expected)
    return number


def real(
    option: str, value: object, low: float, high: float = math.inf, *, above: bool = False
) -> float:
    """Return a finite ``float`` in ``[low, high]``, or in ``(low, high]`` with ``above``."""
    expected = f"a finite number {'>' if above else '>='} {low:g}"
    if high != math.inf:
        expected += f" and <= {high:g}"

    # float() would accept strings and bools, which are not meant as numbers.
    # Numbers first, as above.
    if isinstance(value, bool | str | bytes) or not isinstance(value, (float, int, SupportsFloat)):
        raise InvalidOptionError(option, value, expected)
    try:
        number = float(value)
    except (ArithmeticError, TypeError, ValueError):  # too large, an array, a signalling NaN
        raise InvalidOptionError(option, value, expected) from None

    if not math.isfinite(number) or number > high or number < low or (above and number == low):
        raise InvalidOptionError(option, value, expected)
    return number


def flag(option: str, value: object) -> bool:
    """Return a bool; no other type is accepted."""
    if not isinstance(value, bool):
        raise InvalidOptionError(option, value, "True or False")
    return value


def text(option: str, value: object) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise InvalidOptionError(option, value, "a string")
    return value


def unicode(option: str, value: str) -> str:
    """Return a string that has a UTF-8 form."""
    try:
        value.encode()
    except UnicodeEncodeError:
        expected = "valid Unicode text, with no lone surrogates"
        raise InvalidOptionError(option, value, expected) from None
    return value


def texts(option: str, value: object) -> tuple[str, ...]:
    """Return several non-empty strings from any iterable of strings except a string."""
    expected = "a sequence of non-empty strings"
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidOptionError(option, value, expected)
    items = tuple(value)
    for item in items:
        if not isinstance(item, str) or not item:
            raise InvalidOptionError(option, item, expected)
    return items


def integers(option: str, value: object, low: int) -> tuple[int, ...]:
    """Return several integers, each at least ``low``."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidOptionError(option, value, f"a sequence of integers >= {low}")
    return tuple(integer(option, item, low) for item in value)


def one_of(option: str, value: object, allowed: Sequence[str]) -> str:
    """Return one of the ``allowed`` names."""
    if not isinstance(value, str) or value not in allowed:
        raise InvalidOptionError(option, value, "one of " + ", ".join(map(repr, allowed)))
    return value


def path(option: str, value: object) -> str | os.PathLike[str] | None:
    """Return a path, or None."""
    if value is not None and not isinstance(value, str | os.PathLike):
        raise InvalidOptionError(option, value, "a path, or None")
    return value


def labels(option: str, value: object) -> tuple[str, ...]:
    """Return several distinct texts that have a UTF-8 form. Raises `LabelError`."""
    names = texts(option, value)
    seen: set[str] = set()
    for name in names:
        unicode(option, name)
        if name in seen:
            raise LabelError(f"Duplicate label {name!r}. List each label once.")
        seen.add(name)
    return names


def template_variables(option: str, value: object) -> dict[str, object] | None:
    """Return a copy of the variables of a chat template; None for None and for an empty mapping."""
    expected = "a mapping of chat template variables to JSON values, or None"
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidOptionError(option, value, expected)
    for name in value:
        if name in _TEMPLATE_OWN:
            expected = f"variables other than {name}, which chat() sets"
            raise InvalidOptionError(option, value, expected)
    import json  # 1.5 ms that `import core` does without

    try:
        copied = json.loads(json.dumps(dict(value), allow_nan=False, ensure_ascii=False).encode())
    except (TypeError, ValueError, RecursionError):
        raise InvalidOptionError(option, value, expected) from None
    return cast("dict[str, object]", copied) or None


def load_options(option: str, value: object) -> dict[str, object]:
    """Return a backend's own load options by name, their secrets masked."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidOptionError(option, Secret(value), "a mapping of option names to values")
    return checked_keys(value)
