"""The question of classify --task and --head: a file defines it, and answers are decisions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from core.errors import CoreError
from core.kit.support import compares_sentences
from core.protocols import Capability
from core_cli import output
from core_cli.rows.prompts import longest_label
from core_cli.rows.shortening import longest_prompt
from core_cli.values import Decide, Question
from core_tasks.heads import learner

if TYPE_CHECKING:
    from core.options import GenerateConfig
    from core_cli.flags import RowFlags
    from core_cli.jobs.run import RowJob
    from core_cli.loading import Loaded
    from core_tasks import Decision, Task


def task_of(flags: RowFlags) -> Task:
    """Return the task that ``--task`` names.

    Raises `click.UsageError` for flags that the task already sets, and `TaskError` and
    `CalibrationError` for a file that is not a valid task.
    """
    from core_tasks import load_task

    assert flags.task is not None
    refuse_own("task", **_question_flags(flags))
    return load_task(flags.task)


def refuse_own(file: str, **flags: object) -> None:
    """Raise `click.UsageError` for given flags that the file of ``--task`` or ``--head`` sets."""
    for name, value in flags.items():
        if value or (name == "thinking" and value is not None):
            flag = "--" + name.replace("_", "-")
            raise click.UsageError(
                f"{flag} cannot be combined with --{file}, which already sets it."
            )


def _question_flags(flags: RowFlags) -> dict[str, object]:
    return {
        "labels": flags.labels,
        "labels_file": flags.labels_file,
        "label_prefix": flags.label_prefix,
        "label_sentence": flags.label_sentence,
        "template": flags.template,
        "template_file": flags.template_file,
        "chat": flags.chat,
        "system": flags.system,
        "chat_template_kwargs": flags.chat_template_kwargs,
        "thinking": flags.thinking,
        "opening": flags.opening,
        "continue_final_message": flags.continue_final_message,
    }


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
        Capability.LABELS,
        content=to_toml(task),
        prompt=lambda text: "\n".join(task.prompts([text])),
        around=partial(longest_prompt, task),
        decide=lambda loaded: _of_task(task, loaded),
        labelled=GenerateConfig(
            labels=flat(task.words),
            label_prefix=task.label_prefix,
            label_sentence=task.label_sentence,
        ),
    )


def _of_task(task: Task, loaded: Loaded) -> Decide:
    from core.options import GenerateConfig

    task.request(loaded.model)  # a calibration of another model is an error before the work
    _warn_of_kind(task, loaded)
    # The probability of the model's next token shows how unlikely the labels are.
    has_logprobs = Capability.LOGPROBS in loaded.capabilities

    def decide(texts: Sequence[str], config: GenerateConfig) -> list[Decision]:
        limits = GenerateConfig(
            cancel=config.cancel, timeout=config.timeout, return_logprobs=has_logprobs
        )
        # The reader of rows has rejected blank texts, unless they are allowed.
        return task.classify(loaded.model, texts, limits, allow_blank=True)

    return decide


def _warn_of_kind(task: Task, loaded: Loaded) -> None:
    """Warn if a task is run with a model of the other kind than the one that it names."""
    encodes = compares_sentences(loaded.model)
    if task.model and _is_encoder(task.model) == (not encodes):
        kind = "an encoder" if encodes else "a language model"
        output.warn(
            f"the task was made for the model {task.model}, but this one is {kind}, which reads "
            "other prompts. Make a task for it with tune."
        )


def _is_encoder(name: str) -> bool | None:
    """Return whether a model's backend predicts no token; None for a server, or no model."""
    from core.models.files import is_address
    from core.models.locating import located
    from core_cli.loading import choose

    if is_address(name):
        return None
    with suppress(CoreError):
        capabilities = choose(located(name).path, needed=Capability.LABELS).backend.capabilities
        return Capability.CLASSIFY not in capabilities
    return None


def work_of(question: Question, min_margin: float | None) -> RowJob:
    """Return the work of a run on each row."""
    from core.options import GenerateConfig
    from core_cli.jobs.gold import Gold, ManyGold
    from core_cli.jobs.run import RowJob
    from core_cli.writing.answers import decided

    words = question.labelled.labels if question.labelled is not None else ()
    return RowJob(
        command="classify",
        needed=question.needed,
        config=GenerateConfig(labels=question.labels),
        kind=decided(question, min_margin),
        ask=question.decide,
        generate=question.decide,
        question=question.content,
        shown=question.prompt,
        around=question.around,
        room=lambda loaded: longest_label(loaded.model, words),
        labelled=question.labelled,
        gold=partial(ManyGold, labels=question.labels) if question.mode == "many" else Gold,
    )


def question_of(flags: RowFlags) -> Question:
    """Return the question of the head file of ``--head``.

    Raises `click.UsageError` for flags that the head already sets, and `core_learn.HeadFileError`
    for a file that is not a head.
    """
    assert flags.head is not None
    refuse_own("head", **_question_flags(flags))
    if flags.task:
        raise click.UsageError("Give --task or --head, not both.")
    path, learn = flags.head, learner()
    head = learn.load_head(path)

    def prompt(text: str) -> str:
        return str(head.template.replace("{text}", text))

    return Question(
        head.labels,
        "one",
        "head",
        None,
        Capability.HIDDEN_STATES,
        content=hashlib.sha256(Path(path).read_bytes()).hexdigest(),
        prompt=prompt,
        around=prompt,
        decide=lambda loaded: _asking(learn.FewShot.with_head(head, loaded.model, path)),
    )


def _asking(few: Any) -> Decide:
    from core.options import GenerateConfig

    def decide(texts: Sequence[str], config: GenerateConfig) -> list[Decision]:
        limits = GenerateConfig(cancel=config.cancel, timeout=config.timeout)
        decisions: list[Decision] = few.classify(texts, limits, allow_blank=True)
        return decisions

    return decide
