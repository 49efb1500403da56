"""Modules that have moved: an old name imports the new module, for one contract version."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "core.base": "core.kit.base",
    "core.capability": "core.protocols",
    "core.chat": "core.kit.chat",
    "core.clock": "core.kit.clock",
    "core.discovery": "core.models.discovery",
    "core.gguf_header": "core.models.gguf",
    "core.labels": "core.kit.labels",
    "core.model_files": "core.models.files",
    "core.model_stores": "core.models.stores",
    "core.streams": "core.kit.streams",
    "core.support": "core.kit.support",
    "core.text_stream": "core.kit.text_stream",
}
"""The old names of version 1, each with its new one. Version 3 removes them."""
LEFT = {
    "core.serving": "core_runtime, of the distribution infercore-runtime",
    **dict.fromkeys(
        ("core.tasks", "core.calibration", "core.agreement", "core.tuning", "core.evaluation"),
        "core_tasks, of the distribution infercore-tasks",
    ),
    "core.wires": "core_wires, of the distribution infercore-wires",
    **dict.fromkeys(
        ("core.cli", "core.benchmarking"), "core_cli, of the distribution infercore-cli"
    ),
}
"""Packages that are no longer in core, each with the new place of its modules."""


def find_spec(name: str) -> ModuleSpec | None:
    """Return the spec of an old name, None for any other.

    Raises ModuleNotFoundError, with the new place, for a package that is no longer in core.
    """
    if name in LEFT:
        raise ModuleNotFoundError(_moved(name, LEFT[name]), name=name)
    return ModuleSpec(name, _Loader) if name in MOVED else None  # type: ignore[arg-type]


class _Loader:
    """A loader like `importlib.abc.Loader`, whose module would take 40 ms to import."""

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Return None: the import system creates the module."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Replace the old module by the new one."""
        old = module.__name__
        sys.modules[old] = import_module(MOVED[old])
        warnings.warn(_moved(old, MOVED[old]), DeprecationWarning, stacklevel=2)


def _moved(old: str, new: str) -> str:
    return f"The module {old} has moved to {new}. Import that; version 3 removes the old name."
