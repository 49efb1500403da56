"""What a call cost, while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from core.types import GenerateMetrics
from core_conformance.reference.ledger import LEDGER


class Meter:
    """Counts tokens and the seconds of work; the time a reader takes is in the total alone."""

    def __init__(self) -> None:
        self.prompt_tokens = self.generated_tokens = 0
        self._start = time.perf_counter()
        self._prefill = self._decode = 0.0

    @contextmanager
    def prefilling(self) -> Iterator[None]:
        """Reading prompts."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._prefill += time.perf_counter() - begin

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Drawing tokens."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._decode += time.perf_counter() - begin

    def metrics(self) -> GenerateMetrics:
        """So far."""
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
