"""Backends that do not compute flat batches need no numpy."""

from __future__ import annotations

import subprocess
import sys

_IMPORT_ALL = """
import importlib, pkgutil, sys
sys.modules["numpy"] = None  # an import of it fails
import core_runtime
for module in pkgutil.walk_packages(core_runtime.__path__, "core_runtime."):
    if not module.name.startswith("core_runtime.sequences."):
        importlib.import_module(module.name)
"""


def test_all_modules_but_sequences_are_imported_without_numpy() -> None:
    subprocess.run([sys.executable, "-c", _IMPORT_ALL], check=True)
