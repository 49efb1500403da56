"""What learns heads, and asks them: found by its entry point, for `core` needs no numpy."""

from __future__ import annotations

from typing import Any

from core.entry_points import read_group
from core.errors import TaskError
from core.known_plugins import install_command

GROUP = "core.heads"
"""The entry points of what learns heads: a module that has what `core_learn` has."""


def learner() -> Any:
    """The module that learns heads. Raises `TaskError` where none is installed."""
    found = installed_learner()
    if found is None:
        raise TaskError(
            f"Heads are the work of core-learn, which is not installed: {install_command('learn')}"
        )
    return found


def installed_learner() -> Any | None:
    """The same, or None."""
    records, _ = read_group(GROUP)
    return records[0].load() if records else None
