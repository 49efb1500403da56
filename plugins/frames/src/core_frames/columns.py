"""`classify`: a column of texts in, a frame of the same library out, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import narwhals as nw

import core
import core_tasks
from core.api import shared_model
from core_tasks.deciding import Path, Question, decisions, question_of


def classify(
    texts: Any,
    model: core.TextModel | Path,
    labels: Sequence[str] = (),
    *,
    template: str = "{text}",
    task: core_tasks.Task | Path | None = None,
    head: Question | Path | None = None,
    prefix: str = "",
    allow_blank: bool = False,
    cancel: core.CancelToken | None = None,
    timeout: float | None = None,
) -> Any:
    """Return a frame with a row for each text: label, probabilities, margin, label_mass, error.

    ``texts`` is a series of pandas or polars, or a chunked array of pyarrow; the frame is of the
    same library, and has the index of a pandas series. ``model`` is a loaded one, or a name or
    path as `core.load_model` takes it, which is loaded once and shared.

    The question is one of three: ``labels`` after a ``template`` with ``{text}``; a ``task``, a
    `core_tasks.Task` with its calibration, or its path; a ``head`` that `core_learn` has learned,
    or its path. ``probabilities`` has a field for each label (in pandas a dictionary). Some tasks
    add columns: ``labels`` (mode "many"), ``value`` (ordinal labels), ``accepted`` (a threshold). A
    head has no label mass. Column names begin with ``prefix``, so that a frame with the same names,
    such as that of another question, can be joined.

    A null text has a row of nulls and is not run. One that is empty or white space is an error of
    its row unless ``allow_blank``. The error of a text is its ``error``, as a name and a message,
    also after a cancel or timeout. Raises TypeError before any work if ``texts`` is not a column of
    texts, and the library's errors for an invalid question.
    """
    column = _column(texts)
    rows = column.to_list()
    known = [row for row, null in enumerate(column.is_null()) if not null]
    for row in known:
        if not isinstance(rows[row], str):
            kind = type(rows[row]).__name__
            raise TypeError(f"Row {row} of the column {column.name!r} is not a string, but {kind}.")
    question = question_of(labels, template, task=task, head=head)
    config = core.GenerateConfig(cancel=cancel, timeout=timeout)
    known_texts = (rows[row] for row in known)
    results = decisions(question, shared_model(model), known_texts, config, allow_blank=allow_blank)
    return _frame(column, question, known, results, prefix)


def _column(texts: Any) -> nw.Series[Any]:
    try:
        return nw.from_native(texts, series_only=True)
    except TypeError:
        raise TypeError(
            "classify() expects a series of pandas or polars, or a chunked array of pyarrow, got "
            f"{type(texts).__name__}. Select one column of a frame, and collect() a lazy one."
        ) from None


def _frame(
    column: nw.Series[Any],
    question: Question,
    known: Sequence[int],
    results: Iterator[core_tasks.Decision],
    prefix: str,
) -> Any:
    """Return the decisions as columns, each in the row of its text."""
    kinds = {prefix + name: kind for name, kind in _kinds(question).items()}
    values: dict[str, list[Any]] = {name: [None] * len(column) for name in kinds}
    for row, decision in zip(known, results, strict=True):
        for name, column_values in values.items():
            column_values[row] = _value(name.removeprefix(prefix), decision)

    if not column.implementation.is_pandas_like():
        return nw.from_dict(values, kinds, backend=column.implementation).to_native()

    # pandas has no type for what is nested: such a column holds Python's own objects.
    flat = (nw.String, nw.Float64)
    schema = {name: kind if isinstance(kind, flat) else None for name, kind in kinds.items()}
    frame = nw.from_dict(values, schema, backend=column.implementation).to_native()
    frame.index = nw.maybe_get_index(column)
    return frame.astype({name: "boolean" for name in kinds if name == f"{prefix}accepted"})


def _kinds(question: Question) -> dict[str, Any]:
    """Return the columns, each with its type."""
    number, text = nw.Float64(), nw.String()
    kinds: dict[str, Any] = {"label": text}
    is_head = not hasattr(question, "mode")
    mode = getattr(question, "mode", "one")
    if mode == "many":
        kinds["labels"] = nw.List(text)
    kinds["probabilities"] = nw.Struct(dict.fromkeys(question.labels, number))
    kinds["margin"] = number
    if not is_head:
        kinds["label_mass"] = number
    if mode == "levels":
        kinds["value"] = number
    if mode != "many" and getattr(question, "threshold", None) is not None:
        kinds["accepted"] = nw.Boolean()
    return kinds | {"error": text}


def _value(name: str, decision: core_tasks.Decision) -> Any:
    error = decision.error
    if name == "error":
        return None if error is None else f"{type(error).__name__}: {error}"
    value = getattr(decision, name)
    if error is not None and name in ("labels", "accepted"):
        return None
    return [*value] if isinstance(value, tuple) else value
