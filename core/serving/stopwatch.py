"""How long the engine has spent on prefill and on decode."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple


class Spent(NamedTuple):
    """Seconds since the model was loaded."""

    prefill: float = 0.0
    decode: float = 0.0


class Stopwatch:
    """One thread works; any may read, also in the middle of a step.

    So a call that begins or ends while a step runs counts its own part of that step alone.
    """

    def __init__(self) -> None:
        self._state: tuple[Spent, Literal["prefill", "decode"] | None, float] = (Spent(), None, 0.0)

    @contextmanager
    def on(self, work: Literal["prefill", "decode"]) -> Iterator[None]:
        """Count the time of this block."""
        self._state = (self._state[0], work, time.monotonic())
        try:
            yield
        finally:
            self._state = (self.read(), None, 0.0)

    def read(self) -> Spent:
        """What has been spent until now."""
        spent, work, since = self._state
        running = time.monotonic() - since
        if work == "prefill":
            return Spent(spent.prefill + running, spent.decode)
        if work == "decode":
            return Spent(spent.prefill, spent.decode + running)
        return spent
