"""Values in this project's files, read by name with their types and ranges checked."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Self

from core.system.limited_files import Refused, shown

MOST = 2**53
"""The largest integer by default: beyond it, floats cannot represent every integer."""


class Fields:
    """The keys of a table in a file. ``place`` is its path there, empty for the file itself.

    A value that is missing, of another type or out of range raises `Refused` with its place.
    """

    def __init__(self, values: object, place: str = "") -> None:
        if not isinstance(values, Mapping):
            raise Refused(f"{place or 'it'} is {shown(values)}, not a table")
        self.values: Mapping[object, object] = values
        self.place = place

    def only(self, known: Collection[str]) -> Self:
        """Raise `Refused` for keys other than these."""
        for name in self.values:
            if name not in known:
                raise Refused(
                    f"{self.place or 'it'} has the unknown key {shown(name)}; the keys are "
                    f"{', '.join(sorted(known))}"
                )
        return self

    def given(self, name: str) -> bool:
        """Return whether a key exists and is not null."""
        return self.values.get(name) is not None

    def required(self, name: str) -> object:
        """Read a value of any type."""
        if name not in self.values:
            raise Refused(f"{self._place(name)} is missing")
        return self.values[name]

    def text(self, name: str) -> str:
        """Read a text."""
        return text_in(self.required(name), self._place(name))

    def texts(self, name: str) -> tuple[str, ...]:
        """Read a list of texts."""
        return tuple(text_in(value, place) for value, place in self.items(name))

    def flag(self, name: str) -> bool:
        """Read true or false."""
        value = self.required(name)
        if not isinstance(value, bool):
            raise Refused(f"{self._place(name)} is {shown(value)}, not true or false")
        return value

    def integer(self, name: str, low: int = 0, high: int = MOST) -> int:
        """Read a whole number in a range."""
        return integer_in(self.required(name), self._place(name), low, high)

    def number(self, name: str, low: float = -math.inf, high: float = math.inf) -> float:
        """Read a finite number in a range."""
        return number_in(self.required(name), self._place(name), low, high)

    def numbers(self, name: str) -> tuple[float, ...]:
        """Read a list of finite numbers."""
        return tuple(number_in(value, place) for value, place in self.items(name))

    def table(self, name: str) -> Fields:
        """Read a table."""
        return Fields(self.required(name), self._place(name))

    def tables(self, name: str) -> Iterator[Fields]:
        """Read a list of tables."""
        return (Fields(value, place) for value, place in self.items(name))

    def items(self, name: str) -> Iterator[tuple[object, str]]:
        """Read a list: each item, with its place."""
        return items_in(self.required(name), self._place(name))

    def _place(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name


def items_in(value: object, place: str) -> Iterator[tuple[object, str]]:
    """Yield the items of a list, each with its place. Raises `Refused`, at once."""
    if not isinstance(value, list):
        raise Refused(f"{place} is {shown(value)}, not a list")
    items: Iterable[object] = value
    return ((item, f"{place}[{number}]") for number, item in enumerate(items))


def text_in(value: object, place: str) -> str:
    """Return a text that has a UTF-8 form. Raises `Refused`."""
    if not isinstance(value, str):
        raise Refused(f"{place} is {shown(value)}, not a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refused(f"{place} is {shown(value)}, which is not Unicode text") from None
    return value


def integer_in(value: object, place: str, low: int = 0, high: int = MOST) -> int:
    """Return a whole number in a range. Raises `Refused`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise Refused(f"{place} is {shown(value)}, not a whole number from {low} to {high}")
    return value


def number_in(value: object, place: str, low: float = -math.inf, high: float = math.inf) -> float:
    """Return a finite number in a range. Raises `Refused`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Compared unconverted: an integer may be too large for a float.
    if is_number and max(low, -_LARGEST) <= value <= min(high, _LARGEST):  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    raise Refused(f"{place} is {shown(value)}, not {_expected(low, high)}")


_LARGEST = math.nextafter(math.inf, 0)


def _expected(low: float, high: float) -> str:
    if low == -math.inf and high == math.inf:
        return "a finite number"
    return f"a number from {low:g} to {high:g}" if high < math.inf else f"a number from {low:g}"
