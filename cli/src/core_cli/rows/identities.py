"""Checks that row ids are unique."""

from __future__ import annotations

from collections.abc import Iterable

from core_cli import output
from core_cli.reading.row import Row

_MOST = 100_000
_SHOWN = 100


class Identities:
    """A check that warns once of a duplicate among the first 100,000 ids."""

    def __init__(self) -> None:
        # Of each id no more than its hash, for an id can be as long as a line.
        self._places: dict[int, str] = {}
        self._looks = True

    def note(self, rows: Iterable[Row]) -> None:
        """Check the ids of these rows."""
        for row in rows:
            if self._looks and row.identity is not None and row.identity[1] not in (None, ""):
                self._look(row, *row.identity)

    def _look(self, row: Row, name: str, value: object) -> None:
        key = hash((name, repr(value)))
        if (first := self._places.get(key)) is not None:
            output.warn(
                f"{name} {repr(value)[:_SHOWN]} is not unique: it is on {first} and on {row.place}."
            )
        self._places[key] = row.place
        self._looks = first is None and len(self._places) < _MOST
