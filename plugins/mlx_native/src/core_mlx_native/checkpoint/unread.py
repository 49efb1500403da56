"""The safetensors files that a load does not read: all are listed, and some are logged."""

from __future__ import annotations

from pathlib import Path

from core.models.weight_files import ADAPTERS, UNKNOWN_FILE
from core.types import Choice
from core_mlx_native.checkpoint.files import chosen_files
from core_mlx_native.checkpoint.keys import warn_once

_SHOWN = 3


def report_unread(directory: Path, *, with_adapter: bool) -> list[Choice]:
    """Return a choice for each kind of safetensors file that is not read.

    An adapter beside the model, unless one is loaded, and a file of no known kind are logged:
    a user may expect them to count.
    """
    kinds: dict[str, list[str]] = {}
    for name, what in chosen_files(directory).others.items():
        kinds.setdefault(what, []).append(name)

    adapters = [name for names in kinds.values() for name in names if name in ADAPTERS]
    if adapters and not with_adapter:
        warn_once(
            f"{directory}: {adapters[0]} is an adapter beside the model, which is not applied. "
            "Give the directory as adapter_path as well, or move the adapter elsewhere"
        )
    if unknown := kinds.get(UNKNOWN_FILE):
        warn_once(f"{directory}: not read: {_listed(unknown)}, {UNKNOWN_FILE}")
    return [Choice("unread", _listed(names), what) for what, names in kinds.items()]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
