"""Availability of a worker, decided without starting one and without importing MLX.

The worker's interpreter is the caller's own, or the one that the environment variable
``CORE_MLX_LM_PYTHON`` or the load option ``python`` names.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys

from core.known_plugins import install_command

ENVIRONMENT = "CORE_MLX_LM_PYTHON"
INSTALL = install_command("mlx-lm")


def named_interpreter() -> str:
    """The interpreter that ``CORE_MLX_LM_PYTHON`` names; empty where it names none."""
    return os.environ.get(ENVIRONMENT, "").strip()


def resolve_interpreter(name: str) -> str | None:
    """The path of an interpreter given as a path or as a command; None where there is none.

    A link is not followed: a virtual environment's interpreter is one.
    """
    found = shutil.which(os.path.expanduser(name))
    return None if found is None else os.path.abspath(found)


def unavailable_reason() -> str | None:
    """The reason why the default interpreter can run no worker; None if it looks as if it could."""
    if sys.platform == "win32":
        return "mlx-lm does not run on Windows."
    name = named_interpreter()
    if name:
        if resolve_interpreter(name) is None:
            return f"{ENVIRONMENT}={name} is not an interpreter that can be run. Correct it."
        return None  # what it has installed, only a worker can tell
    return next(
        (reason for module in ("msgspec", "mlx_lm", "mlx") if (reason := _missing(module))), None
    )


def _missing(module: str) -> str | None:
    if _is_installed(module):
        return None
    return (
        f"{module} is not installed: {INSTALL}; or set {ENVIRONMENT} to the Python of an "
        "environment that has mlx-lm and msgspec."
    )


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # a broken install, or a module without a spec
        return False
