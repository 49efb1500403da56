"""`classify`: a column of texts in, a frame of the same library out, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import narwhals as nw

import core
from core.shared_models import shared_model
from core.support import blank_error
from core.tasks.deciding import Path, Question, decisions, question_of


def classify(
    texts: Any,
    model: core.TextModel | Path,
    labels: Sequence[str] = (),
    *,
    template: str = "{text}",
    task: core.Task | Path | None = None,
    head: Question | Path | None = None,
    allow_blank: bool = False,
    cancel: core.CancelToken | None = None,
    timeout: float | None = None,
) -> Any:
    """A frame with a row for each text: label, probabilities, margin, label_mass, error.

    ``texts`` is a series of pandas or polars, or a chunked array of pyarrow; the frame is of the
    same library, and has the index of a pandas series. ``model`` is a loaded one, or a name or
    path as `core.load_model` takes it, which is loaded once and shared.

    One of three says what is asked: ``labels`` behind a ``template`` with ``{text}``; a ``task``,
    which is a `core.Task` with its calibration, or the path of one; a ``head``
    that `core_learn` has learned, or the path of one. ``probabilities`` has a field for each label
    (in pandas a dictionary). Columns are added where a task has them: ``labels`` (mode "many"),
    ``value`` (levels), ``accepted`` (a threshold).

    A text that is null has a row of nulls and is not asked. One that is empty or white space is its
    row's error unless ``allow_blank``. What goes wrong with one text is its
    ``error``, as a name and a message, cancelled and late ones among them. Raises TypeError for
    what is no column of texts, before any work, and what the library raises for what is asked.
    """
    column = _column(texts)
    rows = column.to_list()
    known = [row for row, null in enumerate(column.is_null()) if not null]
    for row in known:
        if not isinstance(rows[row], str):
            kind = type(rows[row]).__name__
            raise TypeError(f"The column {column.name!r} holds a {kind} in row {row}, and no text.")
    asked = question_of(labels, template, task=task, head=head)
    config = core.GenerateConfig(cancel=cancel, timeout=timeout)
    blank = {row: error for row in known if (error := blank_error(rows[row])) and not allow_blank}
    texts = (rows[row] for row in known if row not in blank)
    found = decisions(asked, shared_model(model), texts, config)
    results = (core.Decision(error=blank[row]) if row in blank else next(found) for row in known)
    return _frame(column, asked, known, results)


def _column(texts: Any) -> nw.Series[Any]:
    try:
        return nw.from_native(texts, series_only=True)
    except TypeError:
        raise TypeError(
            "classify() takes a series of pandas or polars, or a chunked array of pyarrow, and got "
            f"a {type(texts).__name__}. Name one column of a frame, and collect() a lazy one."
        ) from None


def _frame(
    column: nw.Series[Any], asked: Question, known: Sequence[int], found: Iterator[core.Decision]
) -> Any:
    """The decisions as columns, each in the row of its text."""
    kinds = _kinds(asked)
    values: dict[str, list[Any]] = {name: [None] * len(column) for name in kinds}
    for row, decision in zip(known, found, strict=True):
        for name in kinds:
            values[name][row] = _value(name, decision)

    if not column.implementation.is_pandas_like():
        return nw.from_dict(values, kinds, backend=column.implementation).to_native()

    # pandas has no type for what is nested: such a column holds Python's own objects.
    flat = (nw.String, nw.Float64)
    schema = {name: kind if isinstance(kind, flat) else None for name, kind in kinds.items()}
    frame = nw.from_dict(values, schema, backend=column.implementation).to_native()
    frame.index = nw.maybe_get_index(column)
    return frame.astype({name: "boolean" for name in kinds if name == "accepted"})


def _kinds(asked: Question) -> dict[str, Any]:
    """The columns, each with its type."""
    number, text = nw.Float64(), nw.String()
    kinds: dict[str, Any] = {"label": text}
    mode = getattr(asked, "mode", "one")  # a head has none
    if mode == "many":
        kinds["labels"] = nw.List(text)
    kinds["probabilities"] = nw.Struct(dict.fromkeys(asked.labels, number))
    kinds |= {"margin": number, "label_mass": number}
    if mode == "levels":
        kinds["value"] = number
    if mode != "many" and getattr(asked, "threshold", None) is not None:
        kinds["accepted"] = nw.Boolean()
    return kinds | {"error": text}


def _value(name: str, decision: core.Decision) -> Any:
    error = decision.error
    if name == "error":
        return None if error is None else f"{type(error).__name__}: {error}"
    value = getattr(decision, name)
    if error is not None and name in ("labels", "accepted"):
        return None
    return [*value] if isinstance(value, tuple) else value
