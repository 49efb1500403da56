"""The metadata section of a GGUF file, each key read with its type checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from core.errors import ConversionError, CoreError, UnsupportedModelError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Purpose:
    """The use that a file is read for, which its errors name: a verb, and their type."""

    verb: str
    error: type[CoreError]


CONVERT = Purpose("convert", ConversionError)
LOAD = Purpose("load", UnsupportedModelError)


class Metadata:
    """GGUF metadata. Keys that start with ``.`` belong to the architecture (``llama.…``).

    Key names: the GGUF specification, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
    Every method raises the error of ``purpose`` for a missing key without default or a wrong type.
    """

    def __init__(
        self, values: Mapping[str, object], where: str, purpose: Purpose = CONVERT
    ) -> None:
        self.values, self.where, self._purpose = values, where, purpose
        self._read: set[str] = set()
        self.architecture = self.text("general.architecture")

    def error(self, problem: str) -> CoreError:
        """Return an error about this file."""
        return self._purpose.error(f"Cannot {self._purpose.verb} {self.where}: {problem}.")

    def unread(self) -> Iterator[tuple[str, object]]:
        """Yield the keys that were not read until now, with their values."""
        return ((key, value) for key, value in self.values.items() if key not in self._read)

    def get(self, key: str) -> Any:
        """Return a value unchecked; None if it is absent."""
        full = self._full(key)
        self._read.add(full)
        return self.values.get(full)

    def integer(self, key: str, default: int | None = None) -> int:
        """Read an integer."""
        value = self._required(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, value, "an integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Read a float, rounded to the seven digits that the stored float32 holds."""
        value = self._required(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, value, "a number")
        return float(f"{value:.7g}")

    def flag(self, key: str, default: bool) -> bool:
        """Read a boolean."""
        value = self._required(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """Read a string."""
        value = self._required(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a string")
        return value

    def texts(self, key: str, length: int | None = None) -> Sequence[str]:
        """Read an array of strings, of ``length`` items if given."""
        return self._array(key, str, length)

    def integers(self, key: str, length: int | None = None) -> Sequence[int]:
        """Read an array of integers (booleans count as 0 and 1)."""
        return self._array(key, int, length)

    def numbers(self, key: str, length: int | None = None) -> Sequence[float]:
        """Read an array of floats."""
        return self._array(key, float, length)

    def _array(self, key: str, kind: type[T], length: int | None) -> Sequence[T]:
        value = self._required(key, None)
        if not isinstance(value, list) or not _all_are(kind, value):
            raise self._wrong(key, value, f"an array of {kind.__name__}")
        if length is not None and len(value) != length:
            raise self.error(f"{self._full(key)} has {len(value)} items, not {length}")
        return value

    def _full(self, key: str) -> str:
        return self.architecture + key if key.startswith(".") else key

    def _required(self, key: str, default: object) -> object:
        value = self.get(key)
        if value is None and default is None:
            raise self.error(f"the metadata lacks {self._full(key)}")
        return default if value is None else value

    def _wrong(self, key: str, value: object, expected: str) -> CoreError:
        return self.error(f"the metadata has {self._full(key)}={value!r:.60}, not {expected}")


def _all_are(kind: type, items: list[object]) -> bool:
    """Return True if all are of a type; the items of a vocabulary have few types."""
    return all(issubclass(item_type, kind) for item_type in set(map(type, items)))
