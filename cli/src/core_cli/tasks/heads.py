"""``classify --head FILE``: a classifier head, used like a task."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from core.protocols import Capability
from core_cli.tasks.asking import Decide, Question, refuse_own
from core_tasks.heads import learner

if TYPE_CHECKING:
    from core.options import GenerateConfig
    from core_tasks import Decision


def question_of(flags: Mapping[str, Any]) -> Question:
    """Return the question of the head file of ``--head``.

    Raises `click.UsageError` for flags that the head already sets, and `core_learn.HeadFileError`
    for a file that is not a head.
    """
    refuse_own(flags, "head")
    if flags["task"]:
        raise click.UsageError("Give --task or --head, not both.")
    path, learn = flags["head"], learner()
    head = learn.load_head(path)
    return Question(
        head.labels,
        "one",
        "L2",
        None,
        Capability.HIDDEN_STATES,
        content=hashlib.sha256(Path(path).read_bytes()).hexdigest(),
        prompt=lambda text: head.template.replace("{text}", text),
        decide=lambda loaded: _asking(learn.FewShot.with_head(head, loaded.model, path)),
    )


def _asking(few: Any) -> Decide:
    from core.options import GenerateConfig

    def decide(texts: Sequence[str], config: GenerateConfig) -> list[Decision]:
        limits = GenerateConfig(cancel=config.cancel, timeout=config.timeout)
        decisions: list[Decision] = few.classify(texts, limits)
        return decisions

    return decide
