"""``--truncate`` where a text is put into prompts of a task, of candidates, or of a head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from core.extensions import Tokenizing
from core.kit.support import unsupported
from core.protocols import Capability
from core_cli.rows.prompts import Truncation, longest_label

if TYPE_CHECKING:
    from core_cli.flags import Side
    from core_cli.loading import Loaded
    from core_tasks import Task


def longest_prompt(task: Task, text: str) -> str:
    """Return the longest of a task's prompts for a text."""
    return max(task.prompts([text]), key=len)


def shortened(
    loaded: Loaded,
    texts: Iterable[str],
    side: Side | None,
    prompts: Sequence[Callable[[str], str]],
    labels: Sequence[str] = (),
) -> list[str]:
    """Return the texts so that each of the ``prompts`` around one fits the context.

    Raises `UnsupportedOperationError` without a tokeniser, and `InputError` if a prompt is too long
    without a text.
    """
    rows = [*texts]
    if side is None:
        return rows
    model = loaded.model
    if not isinstance(model, Tokenizing):
        raise unsupported(Capability.TOKENIZING, loaded.backend.name)
    room = longest_label(model, labels) if labels else 1
    truncation = Truncation(side, model.info.context_length - room)
    for prompt in prompts:
        rows = [truncation.shortened(text, prompt, model) for text in rows]
    return rows
