"""Backends that neither compute flat batches nor read arrays here need no numpy."""

from __future__ import annotations

import subprocess
import sys

_IMPORT_ALL = """
import importlib, pkgutil, sys
sys.modules["numpy"] = None  # an import of it fails
import core_runtime
for module in pkgutil.walk_packages(core_runtime.__path__, "core_runtime."):
    name = module.name
    if not (name.startswith("core_runtime.sequences.") or name.endswith(".arrays")):
        importlib.import_module(name)
"""


def test_all_modules_but_sequences_and_arrays_are_imported_without_numpy() -> None:
    subprocess.run([sys.executable, "-c", _IMPORT_ALL], check=True)
