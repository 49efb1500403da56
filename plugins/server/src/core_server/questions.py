"""Tasks and classifier heads that a server answers by name.

A client then sends a name and texts, and gets the calibrated decisions of the file that was made
with ``infer-cli tune``, ``calibrate`` or ``learn``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

from core.errors import TaskError
from core.options import LABEL_SENTENCE, CancelToken, GenerateConfig
from core.protocols import TextModel
from core_tasks.deciding import Path, question_of
from core_tasks.decision import Decision
from core_tasks.heads import learner
from core_tasks.task import Mode, Task


@dataclass(frozen=True, slots=True)
class HeadCall:
    """A call of a classifier head (`core_server.queues.batch_calls.BatchCall`)."""

    few_shot: Any
    most: int = 256

    def __call__(
        self, model: TextModel, rows: Sequence[str], cancel: CancelToken
    ) -> list[Decision]:
        """Return the decisions for these texts."""
        limits = GenerateConfig(cancel=cancel)
        decisions: list[Decision] = self.few_shot.classify(rows, limits, allow_blank=True)
        return decisions


@dataclass(frozen=True, eq=False)
class HeadQuestion:
    """A classifier head, with the properties of a task by which the server limits a request.

    ``call`` runs it on the model that it was checked for; None before `on`.
    """

    head: Any
    call: HeadCall | None = None

    mode: ClassVar[Mode] = "one"
    level: ClassVar[str] = "head"
    questions: ClassVar[tuple[str, ...]] = ("",)
    label_sentence: ClassVar[str] = LABEL_SENTENCE

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the head."""
        return tuple(self.head.labels)

    @property
    def template(self) -> str:
        """The prompt, with ``{text}`` for the text."""
        return str(self.head.template)

    def prompts(self, texts: Iterable[str]) -> list[str]:
        """Return the prompt of each text."""
        return [self.template.replace("{text}", text) for text in texts]

    @property
    def ready(self) -> HeadCall:
        """The call of a head that `on` returned."""
        assert self.call is not None
        return self.call

    def on(self, model: TextModel, name: str = "the head") -> HeadQuestion:
        """Return the head for a model. Runs a few texts; raises `TaskError` for another model."""
        learn = learner()
        try:
            return replace(self, call=HeadCall(learn.FewShot.with_head(self.head, model, name)))
        except learn.ForeignHeadError as error:
            raise TaskError(str(error)) from error


Question: TypeAlias = Task | HeadQuestion


@dataclass(frozen=True, slots=True)
class NamedQuestion:
    """A task or head by its name; ``model`` answers it unless a request names another."""

    name: str
    question: Question
    model: str

    def check(self, model: TextModel) -> None:
        """Raise `TaskError` if this model cannot answer the question."""
        if isinstance(self.question, Task):
            self.question.request(model)
        else:
            self.question.on(model, self.name)

    def to_dict(self) -> dict[str, object]:
        """Return the description for ``/v1/tasks``."""
        question = self.question
        return {
            "id": self.name,
            "object": "task" if isinstance(question, Task) else "head",
            "model": self.model,
            "labels": question.labels,
            "mode": question.mode,
            "level": question.level,
            "template": question.template,
        }


def named_questions(
    tasks: Mapping[str, Task | Path] | None,
    heads: Mapping[str, Any] | None,
    models: Sequence[str],
) -> dict[str, NamedQuestion]:
    """Return tasks and heads, or those in their files, by name.

    A task belongs to the model that it was made for, if that is among the served ``models``;
    everything else to the first. Raises ValueError for a name that is used twice, and the errors of
    the files.
    """
    tasks, heads = tasks or {}, heads or {}
    if both := sorted(tasks.keys() & heads.keys()):
        raise ValueError(f"A task and a head are both named {both[0]!r}. Rename one of them.")
    questions: dict[str, Question] = {name: question_of(task=task) for name, task in tasks.items()}
    questions |= {name: HeadQuestion(question_of(head=head)) for name, head in heads.items()}
    return {
        name: NamedQuestion(name, question, _model_of(question, models))
        for name, question in questions.items()
    }


def _model_of(question: Question, models: Sequence[str]) -> str:
    name = public_name(question.model) if isinstance(question, Task) else ""
    return name if name in models else models[0]


def public_name(model: str) -> str:
    """Return the public name of a model's file or directory."""
    return os.path.basename(os.path.normpath(model)).removesuffix(".gguf") if model else ""
