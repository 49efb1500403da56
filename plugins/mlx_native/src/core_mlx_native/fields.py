"""Typed reading of a JSON object from a model directory, which may say anything."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from core.errors import InvalidModelError

_MAX_SIZE = 2**31 - 1  # MLX counts dimensions in 32 bits


class Fields:
    """The keys of one config.json, each read with its type checked."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values, self.where = values, where

    def error(self, problem: str) -> InvalidModelError:
        """An error about this file."""
        return InvalidModelError(f"{self.where}: {problem}. Check that the download is complete.")

    def integer(self, name: str, default: int | None = None, low: int = 1) -> int:
        """A whole number; required when there is no default."""
        value = self.values.get(name)
        value = default if value is None else value
        if value is None:
            raise self.error(f"{name} is missing")
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= _MAX_SIZE:
            raise self.error(f"{name} is {value!r:.60}, not a whole number from {low}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number above zero; required when there is no default."""
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.error(f"{name} is {value!r:.60}, not a number")
        # Compared before it is converted: a JSON integer may be too large for a float.
        if 0 < value <= sys.float_info.max:
            return float(value)
        raise self.error(f"{name} is {value!r:.60}, not a finite number above zero")

    def flag(self, name: str, default: bool) -> bool:
        """A boolean."""
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise self.error(f"{name} is {value!r:.60}, not true or false")
        return value

    def section(self, name: str) -> Fields | None:
        """An object inside this one; None where it is absent or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.error(f"{name} is {value!r:.60}, not an object")
        return Fields(value, f"{self.where}: {name}")
