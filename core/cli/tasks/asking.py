"""``classify --task FILE``: the question, its labels and its calibration come from a task file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from core.cli.jobs.run import Task as Work
    from core.cli.loading import Loaded
    from core.options import GenerateConfig
    from core.tasks import Decision, Task

_OWN = (
    *("labels", "labels_file", "label_prefix", "template", "template_file", "chat", "system"),
    "truncate",
)


def task_of(flags: Mapping[str, Any]) -> Task:
    """The task that ``--task`` names. Raises `click.UsageError` beside flags of what it says.

    Raises `TaskError` and `CalibrationError` for a file that holds none.
    """
    from core.tasks import load_task

    for name in _OWN:
        if flags.get(name):
            flag = "--" + name.replace("_", "-")
            raise click.UsageError(f"The task says what is asked: leave {flag} or --task away.")
    return load_task(flags["task"])


def work_of(task: Task, min_margin: float | None) -> Work:
    """What is asked of each row."""
    from core.cli.jobs.gold import Gold
    from core.cli.jobs.run import Task as Work
    from core.cli.tasks.many_gold import ManyGold
    from core.cli.writing.answers import decided
    from core.options import GenerateConfig
    from core.protocols import Capability
    from core.tasks.files import to_toml

    def asks(loaded: Loaded) -> Any:
        # How likely the model finds its own next token shows how far beside it the labels are.
        told = Capability.LOGPROBS in loaded.backend.capabilities

        def ask(texts: Sequence[str], config: GenerateConfig) -> list[Decision]:
            limits = GenerateConfig(
                cancel=config.cancel, timeout=config.timeout, return_logprobs=told
            )
            return task.classify(loaded.model, texts, limits)

        return ask

    def fitted(loaded: Loaded, config: GenerateConfig) -> GenerateConfig:
        task.request(loaded.model)  # a calibration of another model is refused before the work
        return config

    return Work(
        command="classify",
        needed=Capability.CLASSIFY,
        config=GenerateConfig(labels=task.labels),
        kind=decided(task, min_margin),
        ask=asks,
        generate=asks,
        fitted=fitted,
        question=to_toml(task),
        shown=lambda text: "\n".join(task.prompts([text])),
        gold=partial(ManyGold, labels=task.labels) if task.mode == "many" else Gold,
    )
