"""Classification questions as values or files: labels, a task, or a classifier head.

For programs that pass a question on, for example to other processes: it is read once, and run on
any model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from core.errors import TaskError
from core.options import LABEL_SENTENCE, GenerateConfig
from core.protocols import TextModel
from core_tasks.decision import Decision
from core_tasks.files import load_task
from core_tasks.heads import learner
from core_tasks.task import Task

Path = str | os.PathLike[str]
Question = Any
"""A `Task`, or a classifier head of infercore-learn; either can be pickled."""
Decide = Callable[[Sequence[str]], list[Decision]]


def question_of(
    labels: Sequence[str] = (),
    template: str = "{text}",
    label_prefix: str = " ",
    task: Task | Path | None = None,
    head: Question | Path | None = None,
    label_sentence: str = LABEL_SENTENCE,
) -> Question:
    """Return the question: ``labels`` after a ``template``, a ``task``, or a ``head``.

    ``label_prefix`` and ``label_sentence`` are those of `Task`, for ``labels``.
    Raises `TaskError` unless exactly one is given, `LabelError`, and the errors of its file.
    """
    if [bool(labels), task is not None, head is not None].count(True) != 1:
        raise TaskError("Pass exactly one of labels, a task and a head.")
    if task is not None:
        return task if isinstance(task, Task) else load_task(task)
    if head is not None:
        return learner().load_head(head) if isinstance(head, str | os.PathLike) else head
    return Task(template, tuple(labels), label_prefix=label_prefix, label_sentence=label_sentence)


def decider(question: Question, model: TextModel) -> Decide:
    """Return a function that classifies texts with this model: one decision for each text.

    A failure of one text is its ``error``; blank texts are run, and it is for the caller to reject
    them (`core.kit.support.without_blank`). Raises, before any work, `CalibrationError`, or the
    error of a head that was not learned on this model.
    """
    if isinstance(question, Task):
        task: Task = question
        task.request(model)
        return lambda texts: task.classify(model, texts, allow_blank=True)
    few = learner().FewShot.with_head(question, model)
    return lambda texts: few.classify(texts, allow_blank=True)


def decisions(
    question: Question,
    model: TextModel,
    texts: Iterable[str],
    config: GenerateConfig | None = None,
    *,
    allow_blank: bool = False,
) -> Iterator[Decision]:
    """Return an iterator of one decision for each text, in constant memory.

    A blank text fails unless ``allow_blank``. ``config`` is for ``cancel`` and ``timeout``. Raises
    like `decider`, at the call.
    """
    if isinstance(question, Task):
        return question.classify_iter(model, texts, config, allow_blank=allow_blank)
    few = learner().FewShot.with_head(question, model)
    results: Iterator[Decision] = few.classify_iter(texts, config, allow_blank=allow_blank)
    return results
