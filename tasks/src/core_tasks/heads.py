"""Access to classifier heads: their module is found by entry point, since `core` has no numpy."""

from __future__ import annotations

from typing import Any

from core.errors import TaskError
from core.plugins import install_command, read_group

GROUP = "core.heads"
"""The entry-point group of modules that learn classifier heads, with the API of `core_learn`."""


def learner() -> Any:
    """Return the module that learns classifier heads. Raises `TaskError` if none is installed."""
    module = installed_learner()
    if module is None:
        raise TaskError(
            f"Classifier heads require infercore-learn. Install it with: {install_command('learn')}"
        )
    return module


def installed_learner() -> Any | None:
    """Return the module that learns classifier heads, or None."""
    records, _ = read_group(GROUP)
    return records[0].load() if records else None
