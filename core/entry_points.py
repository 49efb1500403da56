"""Entry points of one group, read from metadata so that one broken distribution hides only itself.

``importlib.metadata.entry_points()`` raises for all groups if any installed
``entry_points.txt`` is malformed, and indexing it by a doubled name silently takes the first.
Format: https://packaging.python.org/en/latest/specifications/entry-points/
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # at run time it costs tens of milliseconds, and only `read_group` needs it
    from importlib.metadata import Distribution


@dataclass(frozen=True, slots=True)
class EntryPointRecord:
    """One line of an ``entry_points.txt``; nothing is imported before ``load()``."""

    name: str
    group: str
    value: str
    distribution: str
    version: str

    def load(self) -> object:
        """Import the module and return the object. Raises whatever the module raises."""
        from importlib.metadata import EntryPoint

        return EntryPoint(name=self.name, value=self.value, group=self.group).load()


@dataclass(frozen=True, slots=True)
class EntryPointFailure:
    """A distribution whose entry points could not be read, and the error."""

    distribution: str
    error: Exception


def read_group(group: str) -> tuple[tuple[EntryPointRecord, ...], tuple[EntryPointFailure, ...]]:
    """Return all entry points of a group, sorted by name and distribution, and the failures.

    Of several copies of one distribution the first on ``sys.path`` counts, as for imports.
    """
    from importlib.metadata import distributions

    records: list[EntryPointRecord] = []
    failures: list[EntryPointFailure] = []
    seen: set[str] = set()
    for distribution in distributions():
        try:
            records += _read(distribution, group, seen)
        except Exception as error:  # noqa: BLE001 - metadata is foreign input of any shape
            failures.append(EntryPointFailure(_label(distribution), error))
    records.sort(key=lambda record: (record.name, record.distribution, record.value))
    return tuple(records), tuple(failures)


def _read(distribution: Distribution, group: str, seen: set[str]) -> list[EntryPointRecord]:
    if f"[{group}]" not in (distribution.read_text("entry_points.txt") or ""):
        return []  # a cheap look first: parsing every METADATA costs more than the rest
    name = distribution.metadata["Name"]
    key = re.sub(r"[-_.]+", "-", name).lower()  # PEP 503
    if key in seen:
        return []
    seen.add(key)
    first = _first_on_path(distribution, name)
    return [
        EntryPointRecord(point.name, group, point.value, name, first.version)
        for point in first.entry_points
        if point.group == group
    ]


def _first_on_path(distribution: Distribution, name: str) -> Distribution:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import distribution as find

    try:
        return find(name)
    except PackageNotFoundError:  # its folder is not called what its metadata says
        return distribution


def _label(distribution: Distribution) -> str:
    try:
        name = distribution.metadata["Name"]
    except Exception:  # noqa: BLE001 - a label is wanted most when the metadata is broken
        name = None
    return name or f"a distribution without a name in {distribution.locate_file('')}"
