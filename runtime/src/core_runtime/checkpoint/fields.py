"""Type-checked reading of a JSON object from a model directory, whose contents are untrusted."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import InvalidModelError, ModelNotFoundError
from core.models.files import read_json_object

_MAX_SIZE = 2**31 - 1  # array libraries count dimensions in 32 bits


class JsonFiles:
    """The JSON files of one model directory, each read once and shared by all parts of a load."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._read: dict[str, Mapping[str, Any]] = {}
        self._missing: set[str] = set()

    def read(self, name: str) -> Mapping[str, Any]:
        """Return the object in a file. Raises like `core.models.files.read_json_object`."""
        if name not in self._read:
            self._read[name] = read_json_object(self.directory / name)
        return self._read[name]

    def read_if_there(self, name: str) -> Mapping[str, Any]:
        """Return the object in a file; an empty one if the file does not exist."""
        if name in self._missing:
            return {}
        try:
            return self.read(name)
        except ModelNotFoundError:
            self._missing.add(name)
            return {}


class ConfigFields:
    """The keys of one config.json, each read with its type checked."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values, self.where = values, where

    def error(self, problem: str) -> InvalidModelError:
        """Return an error about this file."""
        return InvalidModelError(f"{self.where}: {problem}. Check that the download is complete.")

    def integer(self, name: str, default: int | None = None, low: int = 1) -> int:
        """Read an integer, which is required without a default."""
        value = self.values.get(name)
        value = default if value is None else value
        if value is None:
            raise self.error(f"{name} is missing")
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= _MAX_SIZE:
            raise self.error(f"{name} is {value!r:.60}, not an integer >= {low}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Read a finite number > 0, which is required without a default."""
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.error(f"{name} is {value!r:.60}, not a number")
        # Compared before it is converted: a JSON integer may be too large for a float.
        if 0 < value <= sys.float_info.max:
            return float(value)
        raise self.error(f"{name} is {value!r:.60}, not a finite number > 0")

    def flag(self, name: str, default: bool) -> bool:
        """Read a boolean."""
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise self.error(f"{name} is {value!r:.60}, not true or false")
        return value

    def section(self, name: str) -> ConfigFields | None:
        """Read an object inside this one; None if it is absent or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.error(f"{name} is {value!r:.60}, not an object")
        return ConfigFields(value, f"{self.where}: {name}")
