"""``classify --task`` and ``--head``: a file defines the question, and answers are decisions.

A task reads labels after a prompt, a head the model's hidden state. A run treats both alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from core.protocols import Capability

if TYPE_CHECKING:
    from core.options import GenerateConfig
    from core_cli.jobs.run import Task as Work
    from core_cli.loading import Loaded
    from core_tasks import Decision, Task
    from core_tasks.calibration import Level
    from core_tasks.task import Mode

_OWN = (
    *("labels", "labels_file", "label_prefix", "template", "template_file", "chat", "system"),
    *("truncate", "chat_template_kwargs", "thinking", "opening"),
    "continue_final_message",
)
Decide = Callable[[Sequence[str], "GenerateConfig"], Any]
"""Texts in, and a `core_tasks.Decision` for each out."""


@dataclass(frozen=True, slots=True)
class Question:
    """The question of a task or head file.

    ``content`` identifies all that the answers depend on, ``prompt`` returns a text's prompt, and
    ``decide`` runs a loaded model; it raises for a model that the file is not for, before any work.
    ``labelled`` has the labels that may follow a prompt, and their prefix; None without labels.
    """

    labels: tuple[str, ...]
    mode: Mode
    level: Level
    threshold: float | None
    needed: Capability
    content: str
    prompt: Callable[[str], str]
    decide: Callable[[Loaded], Decide]
    labelled: GenerateConfig | None = None


def task_of(flags: Mapping[str, Any]) -> Task:
    """Return the task that ``--task`` names.

    Raises `click.UsageError` for flags that the task already sets.

    Raises `TaskError` and `CalibrationError` for a file that is not a valid task.
    """
    from core_tasks import load_task

    refuse_own(flags, "task")
    return load_task(flags["task"])


def refuse_own(flags: Mapping[str, Any], file: str) -> None:
    """Raise `click.UsageError` for flags that the file of ``--task`` or ``--head`` sets."""
    for name in _OWN:
        if flags.get(name) or (name == "thinking" and flags.get(name) is not None):
            flag = "--" + name.replace("_", "-")
            raise click.UsageError(
                f"{flag} cannot be combined with --{file}, which already sets it."
            )


def of_task(task: Task) -> Question:
    """Return the question of a task."""
    from core.options import GenerateConfig
    from core_tasks.files import to_toml
    from core_tasks.words import flat

    return Question(
        task.labels,
        task.mode,
        task.level,
        task.threshold,
        Capability.CLASSIFY,
        content=to_toml(task),
        prompt=lambda text: "\n".join(task.prompts([text])),
        decide=lambda loaded: _of_task(task, loaded),
        labelled=GenerateConfig(labels=flat(task.words), label_prefix=task.label_prefix),
    )


def _of_task(task: Task, loaded: Loaded) -> Decide:
    from core.options import GenerateConfig

    task.request(loaded.model)  # a calibration of another model is an error before the work
    # The probability of the model's next token shows how unlikely the labels are.
    told = Capability.LOGPROBS in loaded.capabilities

    def decide(texts: Sequence[str], config: GenerateConfig) -> list[Decision]:
        limits = GenerateConfig(cancel=config.cancel, timeout=config.timeout, return_logprobs=told)
        return task.classify(loaded.model, texts, limits)

    return decide


def work_of(question: Question, min_margin: float | None) -> Work:
    """Return the work of a run on each row."""
    from core.options import GenerateConfig
    from core_cli.jobs.gold import Gold
    from core_cli.jobs.many_gold import ManyGold
    from core_cli.jobs.run import Task as Work
    from core_cli.writing.answers import decided

    return Work(
        command="classify",
        needed=question.needed,
        config=GenerateConfig(labels=question.labels),
        kind=decided(question, min_margin),
        ask=question.decide,
        generate=question.decide,
        question=question.content,
        shown=question.prompt,
        labelled=question.labelled,
        gold=partial(ManyGold, labels=question.labels) if question.mode == "many" else Gold,
    )
