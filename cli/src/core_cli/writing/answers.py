"""Turns results into answers, and answers into output rows: line number, input fields, answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.records import error_record
from core.types import BatchResult, ClassifyResult
from core_cli.reading.row import Row
from core_cli.values import UNSURE, Answer, Answered, Kind, Question, Result

if TYPE_CHECKING:
    from core_cli.flags import Keep
    from core_tasks import Decision


_CLASSIFIED = frozenset(("line", "probability", *ClassifyResult().to_dict()))


def labelled(min_margin: float | None) -> Kind:
    """Return the kind with labels; a margin below ``min_margin`` makes a label "unsure"."""

    def answer(result: Result) -> Answer:
        record = result.to_dict()
        margin = record["margin"]
        if min_margin is not None and isinstance(margin, float) and margin < min_margin:
            record["label"] = UNSURE
        return record

    columns = ("label", "probability", "margin", "label_mass", "error")
    return Kind(answer, _unclassified, columns, _label_values, _CLASSIFIED)


def labels_alone() -> Kind:
    """Return the kind with the label alone."""

    def answer(result: Result) -> Answer:
        record = result.to_dict()
        return {name: record[name] for name in ("label", "error")}

    def failed(error: Exception) -> Answer:
        return answer(ClassifyResult(error=error))

    def values(answer: Answer) -> tuple[object, ...]:
        return answer["label"], message(answer)

    return Kind(answer, failed, ("label", "error"), values, frozenset(("line", "label", "error")))


_IN_MODE = {
    "one": ("label", "probability", "margin"),
    "levels": ("label", "value", "spread"),
    "many": ("labels",),
}
"""Columns of a table that depend on the mode of the task."""
_ONLY_IN = {"value": "levels", "spread": "levels", "labels": "many", "parts": "many"}


_OF_LABELS = ("label_mass", "logprobs", "token")
"""Fields that a head does not set: it reads hidden states, not the probabilities of labels."""


def decided(question: Question, min_margin: float | None) -> Kind:
    """Return the kind of a task or head; a label below the threshold is "unsure"."""
    from core_tasks import Decision

    left_out = {name for name, only in _ONLY_IN.items() if only != question.mode}
    left_out |= {"label"} if question.mode == "many" else set()
    left_out |= {"accepted"} if question.threshold is None else set()
    left_out |= {*_OF_LABELS} if question.level == "head" else set()

    def answer(result: Decision) -> Answer:
        record = {name: v for name, v in result.to_dict().items() if name not in left_out}
        margin = record["margin"]
        small = min_margin is not None and isinstance(margin, float) and margin < min_margin
        if "label" in record and result.error is None and (small or not result.accepted):
            record["label"] = UNSURE
        return record

    columns = (*_IN_MODE[question.mode], "label_mass", "level", "error")
    columns = tuple(name for name in columns if name not in left_out)

    def values(answer: Answer) -> tuple[object, ...]:
        cells = {**answer, "probability": best(answer), "error": message(answer)}
        return tuple(cells[name] for name in columns)

    def failed(error: Exception) -> Answer:
        return answer(Decision(level=question.level, error=error))

    names = frozenset({"line", *columns, *answer(Decision())})
    return Kind(answer, failed, columns, values, names)


def _unclassified(error: Exception) -> Answer:
    return ClassifyResult(error=error).to_dict()


def _label_values(answer: Answer) -> tuple[object, ...]:
    figures = best(answer), answer["margin"], answer["label_mass"]
    return answer["label"], *figures, message(answer)


def best(answer: Answer) -> float | None:
    """Return the probability of the likeliest label."""
    probabilities = answer.get("probabilities")
    return max(probabilities.values()) if isinstance(probabilities, dict) else None


def _token_values(answer: Answer) -> tuple[object, ...]:
    token = answer["token"]
    return token["text"] if isinstance(token, dict) else None, message(answer)


def next_tokens() -> Kind:
    """Return the kind without labels: the next token."""
    return Kind(
        lambda result: result.to_dict(),
        _unclassified,
        ("token", "error"),
        _token_values,
        _CLASSIFIED,
    )


def generated(with_tokens: bool) -> Kind:
    """Return the kind of ``generate``; ``with_tokens`` lists tokens and log-probabilities."""

    def answer(result: Result) -> Answer:
        assert isinstance(result, BatchResult)
        record: Answer = {"answer": result.text, "finish_reason": result.finish_reason}
        if with_tokens:
            record["tokens"] = [token.to_dict() for token in result.tokens]
        return {**record, "error": error_record(result.error)}

    def failed(error: Exception) -> Answer:
        return answer(BatchResult(finish_reason="error", error=error))

    names = frozenset({"line", "answer", "finish_reason", "tokens", "error"})
    return Kind(answer, failed, ("answer", "finish_reason", "error"), _answer_values, names)


def _answer_values(answer: Answer) -> tuple[object, ...]:
    return answer["answer"], answer["finish_reason"], message(answer)


def message(answer: Answer) -> str | None:
    """Return the message of a failed row, else None."""
    error = answer["error"]
    return str(error["message"]) if isinstance(error, dict) else None


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
        """Return the columns of a table; the first row with input fields sets theirs."""
        input_fields = next(
            (input_fields for row in rows if (input_fields := self.kept(row.row))), {}
        )
        return LINE, *input_fields, *self.kind.columns

    def cells(self, answered: Answered, columns: Sequence[str]) -> list[object]:
        """Return the cells of a row in a table with these columns."""
        input_fields, count = self.kept(answered.row), len(self.kind.columns)
        mine = [input_fields.get(name) for name in columns[1:-count]]
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
    """Return a number as rounded in tables, and so as a resumed job reads it back."""
    return float(figure(value))


def answer_of(record: Mapping[str, object], kind: Kind) -> Answer:
    """Return the answer in an output record."""
    return {name: record[name] for name in record if name in kind.names and name != LINE}
