"""When a request has to stop: its ``cancel`` was set, or its ``timeout`` has passed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from core.errors import GenerationCancelled, GenerationTimeout
from core.options import GenerateConfig

Check = Callable[[], None]
"""Raises what ends the request: it was cancelled, its time is over, its model was closed."""

STOPPED = (GenerationCancelled, GenerationTimeout)
"""What `RequestClock.check` raises."""


def never_stop() -> None:
    """A check that lets everything go on."""


class RequestClock:
    """The time and the cancel of one request, asked between any two pieces of its work.

    ``spent``: seconds that the request has worked before.
    """

    def __init__(self, config: GenerateConfig, spent: float = 0.0) -> None:
        self._cancel, self._timeout = config.cancel, config.timeout
        self._start = time.monotonic() - spent
        self._over = False

    @property
    def seconds(self) -> float:
        """Seconds since the request began."""
        return time.monotonic() - self._start

    def stop(self) -> None:
        """End a request that nobody waits for any more: each `check` raises from now on."""
        self._over = True

    def check(self) -> None:
        """Raise `GenerationCancelled` or `GenerationTimeout` when it is time to stop."""
        if self._over:
            raise GenerationCancelled
        if self._cancel is not None and self._cancel.is_set():
            raise GenerationCancelled
        if self._timeout is not None and self.seconds >= self._timeout:
            raise GenerationTimeout(self._timeout)


@contextmanager
def stopping(clock: RequestClock) -> Iterator[RequestClock]:
    """A call that ends with this block, interrupted or not: nothing that still runs goes on."""
    try:
        yield clock
    finally:
        clock.stop()
