"""Lossless conversion of the contract's values to JSON, and back.

A dataclass is an object of those fields that are not at their default. Numbers are those
of JSON; the three that JSON lacks are the strings ``NaN``, ``Infinity`` and ``-Infinity``, as in
ProtoJSON (https://protobuf.dev/programming-guides/json/). Large arrays of float32 are the base64 of
their bytes, little-endian. An error is its type, its message and its attributes, from which the
same error is restored. Missing fields get their default and unknown ones are ignored, so that
either side may add fields first.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import math
import sys
import types
from array import array
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from core import errors
from core.errors import BackendProcessError, CoreError
from core.kit.chat import RenderedPrompt

T = TypeVar("T")
_Reader = Callable[[Any], Any]

_ODD_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_SCALARS = (str, int, float, bool, type(None))


def plain(value: object) -> Any:
    """Return a value for JSON: of numbers, texts, dataclasses of `core`, errors, and containers."""
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _odd_number(value)
    if isinstance(value, RenderedPrompt):
        return {"marked": value.marked, "marker": value.marker}
    if isinstance(value, array):
        return base64.b64encode(_swapped(value).tobytes()).decode("ascii")
    if isinstance(value, BaseException):
        return _error(value)
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if dataclasses.is_dataclass(value):
        return {
            name: plain(getattr(value, name))
            for name, default in _fields(cast("Any", type(value)))
            if getattr(value, name) is not default
        }
    if isinstance(value, tuple | list | frozenset):
        return [plain(item) for item in value]
    return str(value)  # for example, a member of an enum


def value_of(kind: type[T], data: object) -> T:
    """Return the value of this type from data of ``plain``.

    Raises ValueError for other data.
    """
    try:
        return cast("T", _reader(cast("Any", kind))(data))
    except (TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError(f"it is not a {getattr(kind, '__name__', kind)}: {error}") from None


def prompt_of(data: object) -> str:
    """Return a prompt: a text, or a `RenderedPrompt`. Raises ValueError."""
    if isinstance(data, str):
        return data
    if isinstance(data, Mapping) and isinstance(data.get("marked"), str):
        marker = data.get("marker")
        if isinstance(marker, str) and len(marker) == 1:
            return RenderedPrompt(data["marked"], marker)
    raise ValueError("it is not a prompt: expected a text, or an object with marked and marker")


# --------------------------------------------------------------------------- errors


def _error(error: BaseException) -> dict[str, object]:
    if not isinstance(error, CoreError):
        # The message of an unexpected error may contain private data.
        return {"type": "BackendError", "message": f"{type(error).__name__} in the server"}
    known = next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
    attributes = {name: value for name, value in vars(error).items() if _is_plain(value)}
    record: dict[str, object] = {"type": known.__name__, "message": str(error)}
    return record | ({"attributes": plain(attributes)} if attributes else {})


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return isinstance(value, _SCALARS)


def error_of(data: object) -> CoreError:
    """Return the error from data of ``plain``. Raises ValueError for other data."""
    if not isinstance(data, Mapping):
        raise ValueError("it is not an error")
    name, message = data.get("type"), data.get("message")
    kind = getattr(errors, str(name), None)
    if not isinstance(name, str) or not isinstance(message, str):
        raise ValueError("it is not an error: type and message must be texts")
    if not (isinstance(kind, type) and issubclass(kind, CoreError)):
        return BackendProcessError(f"{name}: {message}")
    if issubclass(kind, MemoryError):  # which allows no __new__ from outside
        return kind(message)
    error = kind.__new__(kind, message)
    error.args = (message,)
    attributes = data.get("attributes", {})
    if isinstance(attributes, Mapping):
        error.__dict__.update({str(key): _tuples(value) for key, value in attributes.items()})
    return error


def _tuples(value: object) -> object:
    """Return lists as tuples: JSON only has lists, and errors store tuples."""
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return _ODD_NUMBERS.get(value, value) if isinstance(value, str) else value


# --------------------------------------------------------------------------- one reader a type


@cache
def _fields(kind: type) -> tuple[tuple[str, object], ...]:
    """Return the names of a dataclass's fields with their defaults, or a unique mark."""
    return tuple((field.name, field.default) for field in dataclasses.fields(kind))


@cache
def _reader(kind: Any) -> _Reader:
    """Return a function that makes a value of this type from data.

    Raises TypeError or ValueError.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in (Any, object):
        return lambda data: data
    if kind is float:
        return _number
    if origin in (Union, types.UnionType):
        return _either([member for member in arguments if member is not type(None)], kind)
    if origin is Literal:
        return _one_of(arguments)
    if kind is array:
        return _array
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return error_of
    if dataclasses.is_dataclass(kind):
        return _record(cast("type", kind))
    if origin in (tuple, list):
        item, container = _reader(arguments[0]), origin
        return lambda data: container(map(item, _checked(list, data)))
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        value = _reader(arguments[1])
        return lambda data: {name: value(item) for name, item in _checked(dict, data).items()}
    return lambda data: _checked(kind, data)


class _Float32:
    """Stand-in for ``array[float]`` in annotations, which Python 3.11 cannot evaluate."""

    def __class_getitem__(cls, item: object) -> type[array[float]]:
        return array


def _checked(kind: type, data: Any) -> Any:
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise TypeError(f"{_shown(data)} is not a {kind.__name__}")
    return data


def _record(kind: type) -> _Reader:
    hints = get_type_hints(kind, localns={"array": _Float32})
    readers = {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}

    def read(data: Any) -> Any:
        fields = _checked(dict, data).items()
        return kind(**{name: readers[name](value) for name, value in fields if name in readers})

    return read


def _either(kinds: list[Any], whole: Any) -> _Reader:
    """Return a reader of the first of several types that fits; of None if that is one of them."""
    readers, optional = [_reader(kind) for kind in kinds], type(None) in get_args(whole)

    def read(data: Any) -> Any:
        if data is None and optional:
            return None
        if len(readers) == 1:
            return readers[0](data)
        for reader in readers:
            try:
                return reader(data)
            except (TypeError, ValueError):
                continue
        raise TypeError(f"{_shown(data)} is not one of {whole}")

    return read


def _one_of(allowed: tuple[object, ...]) -> _Reader:
    def read(data: Any) -> Any:
        if data not in allowed:
            raise ValueError(f"{_shown(data)} is not one of {', '.join(map(repr, allowed))}")
        return data

    return read


def _number(data: Any) -> float:
    if isinstance(data, str) and data in _ODD_NUMBERS:
        return _ODD_NUMBERS[data]
    if isinstance(data, bool) or not isinstance(data, int | float):
        raise TypeError(f"{_shown(data)} is not a number")
    return float(data)


def _array(data: Any) -> array[float]:
    try:
        raw = base64.b64decode(_checked(str, data), validate=True)
        return _swapped(array("f", raw))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"it is not base64 of float32 values: {error}") from None


def _swapped(values: array[float]) -> array[float]:
    """Return the values with their bytes swapped on a big-endian machine."""
    if sys.byteorder == "little":
        return values
    other = values[:]
    other.byteswap()
    return other


def _odd_number(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _shown(data: object) -> str:
    text = repr(data)
    return text if len(text) < 80 else f"{text[:79]}…"
