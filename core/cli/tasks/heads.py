"""``classify --head FILE``: the head is read, and asked as a task is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from core.cli.tasks.asking import Decide, Question, refuse_own
from core.protocols import Capability
from core.tasks.heads import learner

if TYPE_CHECKING:
    from core.options import GenerateConfig
    from core.tasks import Decision


def question_of(flags: Mapping[str, Any]) -> Question:
    """What the head that ``--head`` names asks.

    Raises `click.UsageError` beside flags of what it says itself, and `core_learn.HeadFileError`
    for a file that holds none.
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
