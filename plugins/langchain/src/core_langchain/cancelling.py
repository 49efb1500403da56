"""Cancel of a call that an event loop waits for: the caller's own, or that of the waiting task."""

from __future__ import annotations

import threading

import core


class Cancel:
    """Set by ``set()``, or with another token that a caller gave."""

    def __init__(self, given: core.CancelToken | None = None) -> None:
        self._given, self._own = given, threading.Event()

    def set(self) -> None:
        """Stop the call."""
        self._own.set()

    def is_set(self) -> bool:
        """True once either was set."""
        return self._own.is_set() or (self._given is not None and self._given.is_set())
