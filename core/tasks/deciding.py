"""What is decided of texts, as a program names it: labels, a task, or a head, as values or files.

For what passes a question on, to other processes say: it is read once, and asked of any model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from core.errors import TaskError
from core.options import GenerateConfig
from core.protocols import TextModel
from core.tasks.decision import Decision
from core.tasks.files import load_task
from core.tasks.heads import learner
from core.tasks.task import Task

Path = str | os.PathLike[str]
Question = Any
"""A `Task`, or a head of what is installed to learn them; either can be pickled."""
Decide = Callable[[Sequence[str]], list[Decision]]


def question_of(
    labels: Sequence[str] = (),
    template: str = "{text}",
    label_prefix: str = " ",
    task: Task | Path | None = None,
    head: Question | Path | None = None,
) -> Question:
    """The one question that is asked: ``labels`` behind a ``template``, a ``task``, or a ``head``.

    Raises `TaskError` unless exactly one is given, `LabelError`, and what its file raises.
    """
    if [bool(labels), task is not None, head is not None].count(True) != 1:
        raise TaskError("Give labels, a task or a head: one of them, and one alone.")
    if task is not None:
        return task if isinstance(task, Task) else load_task(task)
    if head is not None:
        return learner().load_head(head) if isinstance(head, str | os.PathLike) else head
    return Task(template, tuple(labels), label_prefix=label_prefix)


def decider(question: Question, model: TextModel) -> Decide:
    """What decides texts with this model: a decision for each, with its error where one failed.

    Raises, before any work, `CalibrationError` or what a head raises that is not of this model.
    """
    if isinstance(question, Task):
        task: Task = question
        task.request(model)
        return lambda texts: task.classify(model, texts)
    decide: Decide = learner().FewShot.with_head(question, model).classify
    return decide


def decisions(
    question: Question,
    model: TextModel,
    texts: Iterable[str],
    config: GenerateConfig | None = None,
) -> Iterator[Decision]:
    """One decision for each text, as they come, in constant memory.

    ``config`` is for ``cancel`` and ``timeout``. Raises like `decider`, at the call.
    """
    if isinstance(question, Task):
        return question.classify_iter(model, texts, config)
    found: Iterator[Decision] = (
        learner().FewShot.with_head(question, model).classify_iter(texts, config)
    )
    return found
