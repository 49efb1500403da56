"""hypothesis, which is imported where a check first generates something.

Its import takes a quarter of the start of an isolated check, and few checks generate anything.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import hypothesis
    from hypothesis import strategies as st
else:

    class _Module:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> object:
            return getattr(import_module(self._name), name)

    hypothesis, st = _Module("hypothesis"), _Module("hypothesis.strategies")

__all__ = ["hypothesis", "st"]
