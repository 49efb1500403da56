"""Output rows: line number, copied input fields, answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from core_cli.reading.row import Row
from core_cli.writing.answers import Answer, Kind

if TYPE_CHECKING:
    from core_cli.rows.bulk import Answered

Keep = Literal["all", "id", "none"]
LINE = "line"
_CLASH = "input_"


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of an output row.

    ``keep`` selects the input fields; ``alone`` writes the answer only.
    """

    kind: Kind
    keep: Keep
    alone: bool = False

    def record(self, answered: Answered) -> dict[str, object]:
        """Return the row as a JSON object."""
        if self.alone:
            return answered.answer
        return {LINE: answered.row.line, **self.kept(answered.row), **answered.answer}

    def kept(self, row: Row) -> dict[str, object]:
        """Return the fields of the input.

        A field whose name the answer uses becomes ``input_NAME``.
        """
        if self.keep == "none":
            return {}
        fields = row.fields if self.keep == "all" else dict((row.identity,) if row.identity else ())
        if self.kind.names.isdisjoint(fields):
            return dict(fields)
        return {self._name(name, fields): value for name, value in fields.items()}

    def _name(self, field: str, fields: Mapping[str, object]) -> str:
        """Return the unique name of a field in the output."""
        name = field
        while name in self.kind.names or (name != field and name in fields):
            name = f"{_CLASH}{name}"
        return name

    def columns(self, rows: Sequence[Answered]) -> tuple[str, ...]:
        """Return the columns of a table: those of the first row that has any."""
        kept = next((kept for row in rows if (kept := self.kept(row.row))), {})
        return LINE, *kept, *self.kind.columns

    def cells(self, answered: Answered, columns: Sequence[str]) -> list[object]:
        """Return the cells of a row in a table with these columns."""
        kept, count = self.kept(answered.row), len(self.kind.columns)
        mine = [kept.get(name) for name in columns[1:-count]]
        return [answered.row.line, *mine, *self.kind.cells(answered.answer)]


def as_text(value: object) -> str:
    """Return a cell of a text table.

    Empty for None, four decimals for numbers, JSON for composite values.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, float):
        return figure(value)
    if isinstance(value, list | Mapping):
        import msgspec

        return msgspec.json.encode(value).decode()
    return str(value)


def figure(value: float) -> str:
    """Return a probability as text: four decimals, or three digits if those would be zero."""
    return f"{value:.4f}" if value >= 0.001 or value == 0 else f"{value:.3g}"


def shown(value: float) -> float:
    """Return a number as rounded in tables, which is what a resumed job reads back."""
    return float(figure(value))


def answer_of(record: Mapping[str, object], kind: Kind) -> Answer:
    """Return the answer in an output record."""
    return {name: record[name] for name in record if name in kind.names and name != LINE}
