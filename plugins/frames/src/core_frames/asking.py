"""What is asked of each text: labels behind a template, a task, or a head."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import core
from core_learn import FewShot, load_head

AnyTask: TypeAlias = core.Task | str | os.PathLike[str]
AnyHead: TypeAlias = FewShot | str | os.PathLike[str]
Decide = Callable[[Iterable[str], core.GenerateConfig], Iterator[core.Decision]]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked; ``decide`` gives one decision for each text, in their order.

    ``many`` tells whether each label holds or not by itself, ``numeric`` whether labels are
    levels, ``selective`` whether decisions below a threshold are not accepted.
    """

    labels: tuple[str, ...]
    decide: Decide
    many: bool = False
    numeric: bool = False
    selective: bool = False


def question(
    model: core.TextModel,
    labels: Sequence[str],
    template: str,
    task: AnyTask | None,
    head: AnyHead | None,
) -> Question:
    """The question that exactly one of ``labels``, ``task`` and ``head`` asks of this model.

    Raises TypeError for none of them, or several, and what a task or a head raises that cannot be
    read or belongs to another model.
    """
    given = [name for name, each in _named(labels, task, head) if each]
    if len(given) != 1:
        told = " and ".join(given) or "none of them"
        raise TypeError(f"classify() takes labels, a task or a head, and got {told}.")
    if head is not None:
        return _of_head(model, head)
    if task is None:
        task = core.Task(template, tuple(labels))
    return _of_task(model, task if isinstance(task, core.Task) else core.load_task(task))


def _named(*given: object) -> Iterable[tuple[str, bool]]:
    labels, task, head = given
    return ("labels", bool(labels)), ("a task", task is not None), ("a head", head is not None)


def _of_task(model: core.TextModel, task: core.Task) -> Question:
    task.request(model)  # a calibration of another model is refused before the work

    def decide(texts: Iterable[str], config: core.GenerateConfig) -> Iterator[core.Decision]:
        return task.classify_iter(model, texts, config)

    many, selective = task.mode == "many", task.threshold is not None and task.mode != "many"
    return Question(task.labels, decide, many, task.mode == "levels", selective)


def _of_head(model: core.TextModel, head: AnyHead) -> Question:
    if isinstance(head, FewShot):
        few = FewShot.with_head(head.head, model)
    else:
        few = FewShot.with_head(load_head(head), model, os.fspath(head))
    return Question(few.head.labels, few.classify_iter)
