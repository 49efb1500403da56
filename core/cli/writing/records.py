"""What stands in an output row: its line in the input, what is kept of that, the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from core.cli.reading.row import Row
from core.cli.writing.answers import Answer, Kind

if TYPE_CHECKING:
    from core.cli.rows.bulk import Answered

Keep = Literal["all", "id", "none"]
LINE = "line"
_CLASH = "input_"


@dataclass(frozen=True, slots=True)
class Layout:
    """What is written of a row.

    ``keep`` says what of its input; ``alone``, nothing but the answer.
    """

    kind: Kind
    keep: Keep
    alone: bool = False

    def record(self, answered: Answered) -> dict[str, object]:
        """The row as a JSON object."""
        if self.alone:
            return answered.answer
        return {LINE: answered.row.line, **self.kept(answered.row), **answered.answer}

    def kept(self, row: Row) -> dict[str, object]:
        """The fields of the input; one whose name the answer needs is called ``input_NAME``."""
        if self.keep == "none":
            return {}
        fields = row.fields if self.keep == "all" else dict((row.identity,) if row.identity else ())
        if self.kind.names.isdisjoint(fields):
            return dict(fields)
        return {self._name(name, fields): value for name, value in fields.items()}

    def _name(self, field: str, fields: Mapping[str, object]) -> str:
        """What a field is called in the output: as no other is."""
        name = field
        while name in self.kind.names or (name != field and name in fields):
            name = f"{_CLASH}{name}"
        return name

    def columns(self, rows: Sequence[Answered]) -> tuple[str, ...]:
        """The columns of a table: those of the first row that has any are kept."""
        kept = next((kept for row in rows if (kept := self.kept(row.row))), {})
        return LINE, *kept, *self.kind.columns

    def cells(self, answered: Answered, columns: Sequence[str]) -> list[object]:
        """The cells of a row in a table with these columns."""
        kept, count = self.kept(answered.row), len(self.kind.columns)
        mine = [kept.get(name) for name in columns[1:-count]]
        return [answered.row.line, *mine, *self.kind.cells(answered.answer)]


def as_text(value: object) -> str:
    """A cell of a text table: nothing for None, numbers to four places, JSON for what has parts."""
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
    """A probability for people: four places, or three digits where those would show none."""
    return f"{value:.4f}" if value >= 0.001 or value == 0 else f"{value:.3g}"


def shown(value: float) -> float:
    """A number as tables show it, which is all that a job which goes on knows of it."""
    return float(figure(value))


def answer_of(record: Mapping[str, object], kind: Kind) -> Answer:
    """The answer in a record that was written."""
    return {name: record[name] for name in record if name in kind.names and name != LINE}
