"""When a request has to stop: its ``cancel`` was set, or its ``timeout`` has passed."""

from __future__ import annotations

import time

from core.errors import GenerationCancelled, GenerationTimeout
from core.options import GenerateConfig


class RequestClock:
    """Started with the request; asked at every border between two pieces of work."""

    def __init__(self, config: GenerateConfig) -> None:
        self._cancel, self._timeout = config.cancel, config.timeout
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the request began."""
        return time.monotonic() - self._start

    def check(self) -> None:
        """Raise `GenerationCancelled` or `GenerationTimeout` when it is time to stop."""
        if self._cancel is not None and self._cancel.is_set():
            raise GenerationCancelled
        if self._timeout is not None and self.seconds >= self._timeout:
            raise GenerationTimeout(self._timeout)
