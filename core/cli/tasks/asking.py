"""``classify --task`` and ``--head``: a file says what is asked, and answers are decisions.

A task reads labels behind a prompt, a head the model's hidden state. To a run both are one thing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from core.protocols import Capability

if TYPE_CHECKING:
    from core.calibration import Level
    from core.cli.jobs.run import Task as Work
    from core.cli.loading import Loaded
    from core.options import GenerateConfig
    from core.tasks import Decision, Task
    from core.tasks.task import Mode

_OWN = (
    *("labels", "labels_file", "label_prefix", "template", "template_file", "chat", "system"),
    *("truncate", "chat_template_kwargs", "thinking", "opening"),
    "continue_final_message",
)
Decide = Callable[[Sequence[str], "GenerateConfig"], Any]
"""Texts in, and a `core.Decision` for each out."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a file asks of each text.

    ``content`` stands for all that the answers depend on, ``prompt`` gives a text's prompt, and
    ``decide`` asks a loaded model; it raises for one that the file is not for, before any work.
    ``labelled`` has the labels that may follow a prompt, and their prefix; None: there are none.
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
    """The task that ``--task`` names. Raises `click.UsageError` beside flags of what it says.

    Raises `TaskError` and `CalibrationError` for a file that holds none.
    """
    from core.tasks import load_task

    refuse_own(flags, "task")
    return load_task(flags["task"])


def refuse_own(flags: Mapping[str, Any], file: str) -> None:
    """Raise `click.UsageError` for flags of what the file ``--task`` or ``--head`` says itself."""
    for name in _OWN:
        if flags.get(name) or (name == "thinking" and flags.get(name) is not None):
            flag = "--" + name.replace("_", "-")
            raise click.UsageError(f"The {file} says what is asked: leave {flag} or --{file} away.")


def of_task(task: Task) -> Question:
    """What a task asks."""
    from core.options import GenerateConfig
    from core.tasks.files import to_toml
    from core.tasks.words import flat

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

    task.request(loaded.model)  # a calibration of another model is refused before the work
    # How likely the model finds its own next token shows how far beside it the labels are.
    told = Capability.LOGPROBS in loaded.capabilities

    def decide(texts: Sequence[str], config: GenerateConfig) -> list[Decision]:
        limits = GenerateConfig(cancel=config.cancel, timeout=config.timeout, return_logprobs=told)
        return task.classify(loaded.model, texts, limits)

    return decide


def work_of(question: Question, min_margin: float | None) -> Work:
    """What a run asks of each row."""
    from core.cli.jobs.gold import Gold
    from core.cli.jobs.run import Task as Work
    from core.cli.tasks.many_gold import ManyGold
    from core.cli.writing.answers import decided
    from core.options import GenerateConfig

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
