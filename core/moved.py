"""Modules that have moved: for one version of the contract, an old name leads to the new module."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "core.capability": "core.protocols",
    "core.discovery": "core.models.discovery",
    "core.gguf_header": "core.models.gguf",
    "core.model_files": "core.models.files",
    "core.model_stores": "core.models.stores",
}
"""The old names of version 1, each with its new one. They go with version 3."""
LEFT = {"core.serving": "core_runtime, of the distribution core-runtime"}
"""Packages that core has no more, each with the place where its modules are, by other names."""


def find_spec(name: str) -> ModuleSpec | None:
    """Return the spec of an old name, None for any other.

    Raises ModuleNotFoundError, with the new place, for what has left core.
    """
    if name in LEFT:
        raise ModuleNotFoundError(_moved(name, LEFT[name]), name=name)
    return ModuleSpec(name, _Loader) if name in MOVED else None  # type: ignore[arg-type]


class _Loader:
    """What `importlib.abc.Loader` is; that module would take 40 ms to import."""

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Leave it to the import system."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Put the new module in the place of the old one."""
        old = module.__name__
        sys.modules[old] = import_module(MOVED[old])
        warnings.warn(_moved(old, MOVED[old]), DeprecationWarning, stacklevel=2)


def _moved(old: str, new: str) -> str:
    return f"The module {old} has moved to {new}. Import that: the old name goes with version 3."
