"""What the reference models of this process hold, in bytes: their weights and their contexts."""

from __future__ import annotations

import threading

from core.types import MemoryReport

WEIGHTS_BYTES = 1 << 20
TOKEN_BYTES = 256  # of context, for each token


class Ledger:
    """Counts what was taken and given back. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.active = self.peak = 0

    def add(self, size: int) -> None:
        """Take ``size`` bytes, or give them back when it is negative."""
        with self._lock:
            self.active += size
            self.peak = max(self.peak, self.active)

    def reset_peak(self) -> None:
        """Start the peak anew."""
        with self._lock:
            self.peak = self.active

    def report(self) -> MemoryReport:
        """What is held now, and the peak since the last reset."""
        with self._lock:
            return MemoryReport(self.active, self.peak, 0)


LEDGER = Ledger()
"""The one of this process."""
