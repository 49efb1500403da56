"""From a result to the answer that is written: a dictionary that JSON can hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from core.records import error_record
from core.types import BatchResult, ClassifyResult

Answer = dict[str, object]
Result = ClassifyResult | BatchResult
UNSURE = "unsure"
CELLS = "cells"
"""The key of an answer that was read back from a table: nothing but its cells is known."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What is asked of all rows, and how its answers are written.

    ``answer`` makes one of a result, ``failed`` one of a row's error. ``columns`` are those of a
    table, of which ``values`` gives the cells, numbers as numbers. ``names`` are all that an output
    row uses for itself. ``counted`` is what a summary counts of an answer.
    """

    answer: Callable[[Result], Answer]
    failed: Callable[[Exception], Answer]
    columns: tuple[str, ...]
    values: Callable[[Answer], tuple[object, ...]]
    names: frozenset[str]
    counted: Callable[[Answer], Answer] = lambda answer: answer

    def cells(self, answer: Answer) -> tuple[object, ...]:
        """The cells of an answer, or those that it was read from."""
        cells = answer.get(CELLS)
        return cells if isinstance(cells, tuple) else self.values(answer)


_CLASSIFIED = frozenset(("line", "probability", *ClassifyResult().to_dict()))


def labelled(min_margin: float | None) -> Kind:
    """Answers with labels; one whose margin is below ``min_margin`` is labelled "unsure"."""

    def answer(result: Result) -> Answer:
        found = result.to_dict()
        margin = found["margin"]
        if min_margin is not None and isinstance(margin, float) and margin < min_margin:
            found["label"] = UNSURE
        return found

    columns = ("label", "probability", "margin", "label_mass", "error")
    return Kind(answer, _unclassified, columns, _label_values, _CLASSIFIED)


def _unclassified(error: Exception) -> Answer:
    return ClassifyResult(error=error).to_dict()


def _label_values(answer: Answer) -> tuple[object, ...]:
    figures = best(answer), answer["margin"], answer["label_mass"]
    return answer["label"], *figures, message(answer)


def best(answer: Answer) -> float | None:
    """The probability of the likeliest label."""
    probabilities = answer.get("probabilities")
    return max(probabilities.values()) if isinstance(probabilities, dict) else None


def _token_values(answer: Answer) -> tuple[object, ...]:
    token = answer["token"]
    return token["text"] if isinstance(token, dict) else None, message(answer)


def next_tokens() -> Kind:
    """Answers without labels: the next token."""
    return Kind(
        lambda result: result.to_dict(),
        _unclassified,
        ("token", "error"),
        _token_values,
        _CLASSIFIED,
    )


def generated(with_tokens: bool) -> Kind:
    """Answers of ``generate``; ``with_tokens`` they list each, with its log-probability."""

    def answer(result: Result) -> Answer:
        assert isinstance(result, BatchResult)
        found: Answer = {"answer": result.text, "finish_reason": result.finish_reason}
        if with_tokens:
            found["tokens"] = [token.to_dict() for token in result.tokens]
        return {**found, "error": error_record(result.error)}

    def failed(error: Exception) -> Answer:
        return answer(BatchResult(finish_reason="error", error=error))

    names = frozenset({"line", "answer", "finish_reason", "tokens", "error"})
    return Kind(answer, failed, ("answer", "finish_reason", "error"), _answer_values, names)


def _answer_values(answer: Answer) -> tuple[object, ...]:
    return answer["answer"], answer["finish_reason"], message(answer)


def message(answer: Answer) -> str | None:
    """Why the row failed, in words; None where it did not."""
    error = answer["error"]
    return str(error["message"]) if isinstance(error, dict) else None
