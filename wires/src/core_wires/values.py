"""JSON from outside: bounded first, then read field by field, each knowing its place.

The input may be any JSON. A value that the API does not expect raises the API's own `WireError`,
which names the field. Clients rely on its path and code; the errors of msgspec have neither codes
nor the keys of mappings, so that each of these readers would be longer with it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from core_wires.errors import Dialect, Path, WireError

T = TypeVar("T")

MAX_DEPTH = 64
"""Maximum nesting of containers; a deeper request is an error, because reading it takes a stack."""
MAX_VALUES = 1_000_000
"""Maximum number of values in one request, nested ones included; 400 questions have 300,000."""
_HUGE = 2**1024  # no double holds it


def parsed(text: str | bytes | bytearray, dialect: Dialect) -> object:
    """Return the value of a JSON text. Raises `WireError`."""
    try:
        return json.loads(text, parse_constant=_refused_constant)
    except (ValueError, RecursionError) as error:  # not UTF-8, too deep, too many digits
        raise dialect.invalid((), f"The body is not valid JSON: {error}.", "json_invalid") from None


def _refused_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


def bounded(data: object, dialect: Dialect) -> Value:
    """Return a value after a check that it is finite JSON of valid Unicode within the limits."""
    waiting: list[tuple[object, int]] = [(data, 1)]
    count = 0
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, str):
            _check_unicode(value, dialect)
        elif isinstance(value, Mapping | list | tuple):
            count += len(value)
            if depth > MAX_DEPTH:
                raise dialect.invalid((), f"Nested deeper than {MAX_DEPTH} levels.", "too_deep")
            if count > MAX_VALUES:
                raise dialect.invalid((), f"More than {MAX_VALUES} values.", "too_long")
            inner = [*value, *value.values()] if isinstance(value, Mapping) else value
            waiting.extend((item, depth + 1) for item in inner)
        elif not _is_plain(value):
            raise dialect.invalid((), f"{_shown(value)} is not a JSON value.", "json_invalid")
    return Value(data, (), dialect)


def _check_unicode(text: str, dialect: Dialect) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        message = "A string has a lone surrogate, which is not Unicode text."
        raise dialect.invalid((), message, "string_unicode") from None


def _is_plain(value: object) -> bool:
    if isinstance(value, bool | None):
        return True
    if isinstance(value, int):
        return abs(value) < _HUGE
    return isinstance(value, float) and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class Value:
    """A JSON value at its place in a request. Its methods raise `WireError` for other types."""

    data: object
    path: Path
    dialect: Dialect

    def wrong(self, message: str, code: str = "invalid_value") -> WireError:
        """Return an error about this value."""
        return self.dialect.invalid(self.path, message, code)

    def text(self, *, empty: bool = True) -> str:
        """Return a string; with ``empty=False`` one with more than white space."""
        if not isinstance(self.data, str):
            raise self._not("a string", "string_type")
        if not empty and not self.data.strip():
            raise self.wrong("This must not be empty.", "string_too_short")
        return self.data

    def flag(self) -> bool:
        """Return a truth value."""
        if not isinstance(self.data, bool):
            raise self._not("true or false", "bool_type")
        return self.data

    def number(self) -> float:
        """Return a number."""
        if isinstance(self.data, bool) or not isinstance(self.data, int | float):
            raise self._not("a number", "number_type")
        return self.data

    def integer(self) -> int:
        """Return an integer; 5.0 is one, because JSON does not distinguish them."""
        number = self.number()
        if number != int(number):
            raise self._not("a whole number", "int_type")
        return int(number)

    def fields(self) -> Mapping[str, object]:
        """Return an object."""
        if not isinstance(self.data, Mapping):
            raise self._not("an object", "dict_type")
        return self.data

    def named(self) -> Iterator[tuple[str, Value]]:
        """Yield the fields of an object, null ones too."""
        for name, data in self.fields().items():
            yield name, Value(data, (*self.path, name), self.dialect)

    def items(self) -> list[Value]:
        """Return the items of an array."""
        if not isinstance(self.data, list | tuple):
            raise self._not("an array", "list_type")
        return [Value(item, (*self.path, n), self.dialect) for n, item in enumerate(self.data)]

    def get(self, name: str) -> Value | None:
        """Return a field of an object; None if it is absent or null."""
        data = self.fields().get(name)
        return None if data is None else Value(data, (*self.path, name), self.dialect)

    def need(self, name: str) -> Value:
        """Return a required field of an object."""
        value = self.get(name)
        if value is None:
            missing = Value(None, (*self.path, name), self.dialect)
            raise missing.wrong("This field is required.", "missing")
        return value

    def optional(self, name: str, read: Callable[[Value], T], default: T) -> T:
        """Return a field of an object as ``read`` returns it; the default if absent or null."""
        value = self.get(name)
        return default if value is None else read(value)

    def only(self, known: Collection[str]) -> None:
        """Raise `WireError` for other fields than these, unless null or an ``x_`` extension."""
        for name, value in self.named():
            if name not in known and value.data is not None and not name.startswith("x_"):
                raise value.wrong("Unknown field. Remove it.", "unknown_field")

    def counted(self, number: int, unit: str, low: int, high: int) -> None:
        """Raise `WireError` for a number of things out of range."""
        if not low <= number <= high:
            code = "too_short" if number < low else "too_long"
            raise self.wrong(f"{number} {unit}: there may be {low} to {high}.", code)

    def _not(self, expected: str, code: str) -> WireError:
        return self.wrong(f"This must be {expected}, not {_shown(self.data)}.", code)


def _shown(value: object) -> str:
    """Return a value for a message: its kind, and its contents if they are short."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "an array"
    if value is None or isinstance(value, bool | int | float | str):
        text = json.dumps(value) if not _is_huge(value) else "a huge number"
        return text if len(text) <= 40 else f"{text[:39]}…"
    return f"a {type(value).__name__}"


def _is_huge(value: object) -> bool:
    return isinstance(value, int) and abs(value) >= _HUGE
