"""What rows are called, and that two are called alike."""

from __future__ import annotations

from collections.abc import Iterable

from core.cli import output
from core.cli.reading.row import Row

_MOST = 100_000
_SHOWN = 100


class Identities:
    """Warns, once, of an id that stands twice among the first 100,000."""

    def __init__(self) -> None:
        # Of each id no more than its hash, for an id can be as long as a line.
        self._places: dict[int, str] = {}
        self._looks = True

    def note(self, rows: Iterable[Row]) -> None:
        """Look at the ids of these rows."""
        for row in rows:
            if self._looks and row.identity is not None and row.identity[1] not in (None, ""):
                self._look(row, *row.identity)

    def _look(self, row: Row, name: str, value: object) -> None:
        key = hash((name, repr(value)))
        if (first := self._places.get(key)) is not None:
            output.warn(
                f"The {name} {repr(value)[:_SHOWN]} stands on {first} and on {row.place}, so that "
                "it does not tell rows apart."
            )
        self._places[key] = row.place
        self._looks = first is None and len(self._places) < _MOST
