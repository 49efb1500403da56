"""The check that ``import core`` finds the installed package.

A module named ``core`` next to the running script, or on ``PYTHONPATH``, comes first on
``sys.path``. No code of the installed package runs then, so the check is outside it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

_INSTALLED = Path(__file__).resolve().parent / "core"


def check_import() -> None:
    """Raise ImportError if ``import core`` finds another module than the installed package."""
    # An imported one stays, whatever comes onto sys.path, or leaves it.
    loaded = getattr(sys.modules.get("core"), "__file__", None)
    file = Path(loaded) if loaded is not None else hidden_by()
    if file is not None and not _is_installed(file):
        raise ImportError(
            f"{file} hides the installed package core. Rename it, or take its folder off sys.path, "
            "and start again.",
            name="core",
            path=str(file),
        )


def hidden_by(folders: Sequence[str] | None = None) -> Path | None:
    """Return the other module that ``import core`` finds in these folders, if there is one.

    By default in ``sys.path``. As there, an empty string is the working directory.
    """
    spec = PathFinder.find_spec("core", folders)
    if spec is None or spec.origin is None:  # a folder without __init__.py hides no package
        return None
    return None if _is_installed(Path(spec.origin)) else Path(spec.origin)


def _is_installed(file: Path) -> bool:
    return file.resolve().parent == _INSTALLED  # __init__.py, or .pyc in a frozen program
