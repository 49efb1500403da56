"""Availability of a worker, decided without starting one and without importing MLX.

The worker's interpreter is the caller's, or the one that the environment variable
``CORE_MLX_LM_PYTHON`` or the load option ``python`` names.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys

from core.plugins import install_command

ENVIRONMENT = "CORE_MLX_LM_PYTHON"
INSTALL = install_command("mlx-lm")


def named_interpreter() -> str:
    """Return the interpreter that ``CORE_MLX_LM_PYTHON`` names; empty if it is not set."""
    return os.environ.get(ENVIRONMENT, "").strip()


def resolve_interpreter(name: str) -> str | None:
    """Return the path of an interpreter given as a path or as a command; None if it is missing.

    Symbolic links are not resolved: a virtual environment's interpreter is one.
    """
    path = shutil.which(os.path.expanduser(name))
    return None if path is None else os.path.abspath(path)


def unavailable_reason() -> str | None:
    """Return the reason why the default interpreter cannot run a worker.

    None if no reason can be seen from here.
    """
    if sys.platform == "win32":
        return "mlx-lm does not run on Windows."
    name = named_interpreter()
    if name:
        if resolve_interpreter(name) is None:
            return f"{ENVIRONMENT}={name} is not an executable interpreter. Correct the path."
        return None  # only a worker knows its packages
    return next(
        (reason for module in ("msgspec", "mlx_lm", "mlx") if (reason := _missing(module))), None
    )


def _missing(module: str) -> str | None:
    if _is_installed(module):
        return None
    return (
        f"{module} is not installed. Install it with: {INSTALL}; or set {ENVIRONMENT} to the "
        "Python of an environment with mlx-lm and msgspec."
    )


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # a broken install, or a module without a spec
        return False
