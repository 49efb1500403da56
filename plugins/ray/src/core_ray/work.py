"""What an actor asks its model of a batch of texts, and the columns that the answers make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

import core
from core.tasks.deciding import Question, decider
from core.tasks.template import filled

Columns = dict[str, pa.DataType]
Ask = Callable[[Sequence[str]], Sequence[Any]]
"""Texts in, and a result for each out, whose ``error`` is None unless it failed."""

_ATTRIBUTES = {"answer": "text"}
"""Where a column is not called like the attribute of a result that it holds."""


class Work(Protocol):
    """What is asked of each text."""

    @property
    def columns(self) -> Columns:
        """The columns of the answers, and their types; the last is ``error``."""
        ...

    def bound(self, model: core.TextModel) -> Ask:
        """What asks this model. Raises, before any work, what does not suit it."""
        ...

    def failed(self, error: Exception) -> Any:
        """The result of a text that could not be asked."""
        ...


@dataclass(frozen=True, slots=True)
class Classifying:
    """A decision on each text."""

    question: Question

    @property
    def columns(self) -> Columns:
        """Those of `core_frames`: some are there for the tasks alone that have such values."""
        text, real, mode = pa.string(), pa.float64(), getattr(self.question, "mode", "one")
        found: Columns = {"label": text}
        if mode == "many":
            found["labels"] = pa.list_(text)
        found["probabilities"] = pa.struct([(label, real) for label in self.question.labels])
        found |= {"margin": real, "label_mass": real}
        if mode == "levels":
            found["value"] = real
        if mode != "many" and getattr(self.question, "threshold", None) is not None:
            found["accepted"] = pa.bool_()
        return {**found, "error": text}

    def bound(self, model: core.TextModel) -> Ask:
        """Decisions of the task or the head. Raises for one of another model."""
        return decider(self.question, model)

    def failed(self, error: Exception) -> core.Decision:
        """A decision with an error alone."""
        return core.Decision(error=error)


@dataclass(frozen=True, slots=True)
class Generating:
    """An answer to each text, in a template; with ``chat`` as a message in the model's own.

    ``config`` has the options, the chat template's among them.
    """

    config: core.GenerateConfig
    template: str = "{text}"
    chat: bool = False

    @property
    def columns(self) -> Columns:
        """The answer, and why it ended."""
        return dict.fromkeys(("answer", "finish_reason", "error"), pa.string())

    def bound(self, model: core.TextModel) -> Ask:
        """Answers in one batch. Raises `UnsupportedOperationError` for chats without a template."""
        if self.chat and not isinstance(model, core.Tokenizing):
            raise core.UnsupportedOperationError("chat templates", model.model_type, ())
        render: Any = getattr(model, "render_chat", None) if self.chat else None

        def ask(texts: Sequence[str]) -> list[core.BatchResult]:
            prompts = [filled(self.template, text=text) for text in texts]
            if render is not None:
                turns = ([core.Message("user", prompt)] for prompt in prompts)
                prompts = [render(each, self.config) for each in turns]
            return model.batch_generate(prompts, self.config)

        return ask

    def failed(self, error: Exception) -> core.BatchResult:
        """An answer with an error alone."""
        return core.BatchResult(finish_reason="error", error=error)


def with_answers(rows: pa.Table, columns: Columns, results: Sequence[Any]) -> pa.Table:
    """The rows with their answers behind them; where there is no result, all are null.

    A column of theirs that is called like an answer's becomes ``input_NAME``, as in the files that
    infer-cli writes.
    """
    given = set(rows.column_names)
    rows = rows.rename_columns([_kept(name, columns, given) for name in rows.column_names])
    for name, kind in columns.items():
        values = [None if result is None else _value(name, result) for result in results]
        rows = rows.append_column(name, pa.array(values, kind))
    return rows


def _value(name: str, result: Any) -> Any:
    error = result.error
    if name == "error":
        return error and f"{type(error).__name__}: {error}"
    if error is not None and name in ("labels", "accepted"):
        return None
    return getattr(result, _ATTRIBUTES.get(name, name))


def _kept(field: str, columns: Columns, given: set[str]) -> str:
    """What a column of the input is called beside the answers: as no other is."""
    name = field
    while name in columns or (name != field and name in given):
        name = f"input_{name}"
    return name
