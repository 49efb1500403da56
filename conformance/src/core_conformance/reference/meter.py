"""Metering: the cost of a call, and the bytes that this process's reference models hold."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from core.types import GenerateMetrics, MemoryReport

WEIGHTS_BYTES = 1 << 20
TOKEN_BYTES = 256  # of context, for each token


class Ledger:
    """A counter of allocated and freed bytes. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.active = self.peak = 0

    def add(self, size: int) -> None:
        """Take ``size`` bytes, or give them back when it is negative."""
        with self._lock:
            self.active += size
            self.peak = max(self.peak, self.active)

    def reset_peak(self) -> None:
        """Set the peak to the bytes in use now."""
        with self._lock:
            self.peak = self.active

    def report(self) -> MemoryReport:
        """Return the bytes in use now, and the peak since the last reset."""
        with self._lock:
            return MemoryReport(self.active, self.peak, 0)


LEDGER = Ledger()
"""The ledger of this process."""


class Meter:
    """Counts tokens and the seconds of work; the time a reader takes is in the total alone."""

    def __init__(self) -> None:
        self.prompt_tokens = self.generated_tokens = 0
        self._start = time.perf_counter()
        self._prefill = self._decode = 0.0

    @contextmanager
    def prefilling(self) -> Iterator[None]:
        """Count the seconds of the block as prefill."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._prefill += time.perf_counter() - begin

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Count the seconds of the block as decode."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._decode += time.perf_counter() - begin

    def metrics(self) -> GenerateMetrics:
        """Return the metrics of the call so far."""
        memory = LEDGER.report()
        return GenerateMetrics(
            prompt_tokens=self.prompt_tokens,
            generated_tokens=self.generated_tokens,
            prefill_seconds=self._prefill,
            decode_seconds=self._decode,
            total_seconds=time.perf_counter() - self._start,
            peak_memory_bytes=memory.peak_bytes,
            active_memory_bytes=memory.active_bytes,
        )
