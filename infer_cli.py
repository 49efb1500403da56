"""The program ``infer-cli``, and the check that ``import core`` finds the installed package.

A module named ``core`` next to the running script, or on ``PYTHONPATH``, comes first on
``sys.path``. No code of the installed package runs then, so the check is outside it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

_INSTALLED = Path(__file__).resolve().parent / "core" / "__init__.py"


def main() -> None:
    """Run ``infer-cli``; exit with 1 if another module hides the package ``core``."""
    try:
        check_import()
    except ImportError as error:
        sys.exit(f"Error: {error}")
    from core.__main__ import main as run

    run()


def check_import() -> None:
    """Raise ImportError if ``import core`` finds another module than the installed package."""
    loaded = getattr(sys.modules.get("core"), "__file__", None)
    if loaded is not None and Path(loaded).resolve() == _INSTALLED:
        return  # imported before a folder with another one came onto sys.path
    if file := hidden_by():
        raise ImportError(
            f"{file} hides the installed package core. Rename it, or take its folder off sys.path.",
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
    return None if Path(spec.origin).resolve() == _INSTALLED else Path(spec.origin)
