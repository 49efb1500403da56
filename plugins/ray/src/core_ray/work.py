"""Work of an actor on a batch of texts, and the columns of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

import core
import core_tasks
from core_tasks.deciding import Question, decider
from core_tasks.template import Template

Columns = dict[str, pa.DataType]
Ask = Callable[[Sequence[str]], Sequence[Any]]
"""Texts in, and a result for each out, whose ``error`` is None unless it failed."""

_ATTRIBUTES = {"answer": "text"}
"""Columns whose names differ from the attribute of a result that they hold."""


class Work(Protocol):
    """A question about each text."""

    @property
    def columns(self) -> Columns:
        """The columns of the answers, and their types; the last is ``error``."""
        ...

    def bound(self, model: core.TextModel) -> Ask:
        """Return the function that runs this model. Raises if it does not support the work."""
        ...

    def failed(self, error: Exception) -> Any:
        """Return the result of a text that failed."""
        ...


@dataclass(frozen=True, slots=True)
class Classifying:
    """A decision on each text."""

    question: Question

    @property
    def columns(self) -> Columns:
        """The columns of `core_frames`; some exist only for tasks that have such values."""
        text, real, mode = pa.string(), pa.float64(), getattr(self.question, "mode", "one")
        columns: Columns = {"label": text}
        if mode == "many":
            columns["labels"] = pa.list_(text)
        columns["probabilities"] = pa.struct([(label, real) for label in self.question.labels])
        columns |= {"margin": real, "label_mass": real}
        if mode == "levels":
            columns["value"] = real
        if mode != "many" and getattr(self.question, "threshold", None) is not None:
            columns["accepted"] = pa.bool_()
        return {**columns, "error": text}

    def bound(self, model: core.TextModel) -> Ask:
        """Return the function of the task or the head. Raises for one of another model."""
        return decider(self.question, model)

    def failed(self, error: Exception) -> core_tasks.Decision:
        """Return a decision with only an error."""
        return core_tasks.Decision(error=error)


@dataclass(frozen=True, slots=True)
class Generating:
    """An answer to each text, in a template; with ``chat`` as a message of a chat.

    ``config`` has the options, including the chat template's.
    """

    config: core.GenerateConfig
    template: str = "{text}"
    chat: bool = False

    @property
    def columns(self) -> Columns:
        """The columns of the answer and its finish reason."""
        return dict.fromkeys(("answer", "finish_reason", "error"), pa.string())

    def bound(self, model: core.TextModel) -> Ask:
        """Return the function that answers a batch. Raises `UnsupportedOperationError` for chats
        without a template."""
        if self.chat and not isinstance(model, core.Tokenizing):
            raise core.UnsupportedOperationError("chat templates", model.model_type, ())
        render: Any = getattr(model, "render_chat", None) if self.chat else None
        template = Template(self.template)

        def ask(texts: Sequence[str]) -> list[core.BatchResult]:
            prompts = [template.filled({"text": text}) for text in texts]
            if render is not None:
                turns = ([core.Message("user", prompt)] for prompt in prompts)
                prompts = [render(turn, self.config) for turn in turns]
            return model.batch_generate(prompts, self.config)

        return ask

    def failed(self, error: Exception) -> core.BatchResult:
        """Return an answer with only an error."""
        return core.BatchResult(finish_reason="error", error=error)


def with_answers(rows: pa.Table, columns: Columns, results: Sequence[Any]) -> pa.Table:
    """Return the rows with the columns of their answers added; without a result, all are null.

    An input column with the name of an answer's becomes ``input_NAME``, as in the files that
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
    """Return a unique name for a column of the input among the answers' columns."""
    name = field
    while name in columns or (name != field and name in given):
        name = f"input_{name}"
    return name
