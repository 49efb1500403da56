"""Checks whether a request has to stop: its ``cancel`` is set, or its ``timeout`` has passed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from core.errors import GenerationCancelled, GenerationTimeout
from core.options import GenerateConfig

Check = Callable[[], None]
"""Function that raises if the request has to stop: cancelled, out of time, or model closed."""

STOPPED = (GenerationCancelled, GenerationTimeout)
"""The errors that `RequestClock.check` raises."""


def never_stop() -> None:
    """Do nothing: a check that never stops a request."""


class RequestClock:
    """The timeout and the ``cancel`` of one request, checked between the steps of its work.

    ``spent``: seconds that the request has already run.
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
        """End a request whose caller no longer waits: each `check` raises from now on."""
        self._over = True

    def check(self) -> None:
        """Raise `GenerationCancelled` or `GenerationTimeout` if the request has to stop."""
        if self._over:
            raise GenerationCancelled
        if self._cancel is not None and self._cancel.is_set():
            raise GenerationCancelled
        if self._timeout is not None and self.seconds >= self._timeout:
            raise GenerationTimeout(self._timeout)


@contextmanager
def stopping(clock: RequestClock) -> Iterator[RequestClock]:
    """Stop the clock when the block ends, however it ends, so that work still running stops."""
    try:
        yield clock
    finally:
        clock.stop()
