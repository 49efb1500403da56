"""The safetensors files of a directory that a load reads, and the ignored ones.

Imports neither safetensors nor an array library, for a probe.
"""

from __future__ import annotations

import os
from pathlib import Path

from core.errors import InvalidModelError
from core.models.files import typed_errors
from core.models.weight_files import (
    ADAPTERS,
    INDEX,
    NO_WEIGHTS,
    UNKNOWN_FILE,
    WeightFiles,
    next_step,
    weight_files,
)
from core.types import Choice
from core_runtime.checkpoint.keys import warn_once

RECORD = "conversion.json"
"""The file with a converted directory's source and options, which marks it as converted."""
_SHOWN = 3


def chosen_files(directory: Path) -> WeightFiles:
    """Separate the files with the model's weights from the others.

    Raises `InvalidModelError` without any weights, or for a broken index.
    """
    chosen = _listed_files(directory)
    if chosen.problem:
        raise InvalidModelError(_problem(directory, chosen.problem))
    if chosen.missing:
        raise InvalidModelError(
            f"{directory}: {chosen.missing[0]!r} is missing, although {INDEX} or the names of the "
            "other shards require it. Download the model again."
        )
    return chosen


def without_weights(directory: Path) -> str | None:
    """Return the reason why a directory has no weights at all; None if it has some.

    Other problems are reported by the load: another backend may read other files.
    """
    problem = _listed_files(directory).problem
    return _problem(directory, problem) if problem.startswith(NO_WEIGHTS) else None


def _listed_files(directory: Path) -> WeightFiles:
    where = os.fspath(directory)
    with typed_errors(where):
        names = os.listdir(where)
    return weight_files(where, names)


def _problem(directory: Path, problem: str) -> str:
    return f"{directory} cannot be loaded: {problem}. {next_step(problem)}"


def report_unread(directory: Path, *, with_adapter: bool) -> list[Choice]:
    """Return a choice for each kind of safetensors file that is not read.

    An adapter in the model's directory (unless one is loaded) and a file of unknown kind are
    logged, because a user may expect them to have an effect.
    """
    kinds: dict[str, list[str]] = {}
    for name, what in chosen_files(directory).others.items():
        kinds.setdefault(what, []).append(name)

    adapters = [name for names in kinds.values() for name in names if name in ADAPTERS]
    if adapters and not with_adapter:
        warn_once(
            f"{directory}: {adapters[0]} is an adapter in the model's directory and is not "
            "applied. Pass the directory as adapter_path too, or move the adapter elsewhere"
        )
    if unknown := kinds.get(UNKNOWN_FILE):
        warn_once(f"{directory}: not read: {_listed(unknown)}, {UNKNOWN_FILE}")
    return [Choice("unread", _listed(names), what) for what, names in kinds.items()]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
