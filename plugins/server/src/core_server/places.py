"""Places for requests in progress, with their memory and disk.

The memory budget is one of all requests together: bodies, prompts, results, answers.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import IO

from core_server.settings import Settings
from core_wires.errors import OPENAI, Dialect

_AGAIN = 0.05  # seconds


class Budget:
    """``most`` bytes, of which each request takes a `Share`."""

    def __init__(self, most: int) -> None:
        self.most, self.taken = most, 0
        self._lock = threading.Lock()

    def add(self, size: int) -> bool:
        """Take some bytes, or give some back (negative). Returns False if they are not free."""
        with self._lock:
            fits = size <= 0 or self.taken + size <= self.most
            self.taken += size if fits else 0
            return fits


class Share:
    """The memory that one request has taken, until it is closed. Any thread may use it."""

    def __init__(self, budget: Budget, dialect: Dialect = OPENAI) -> None:
        self._budget, self._dialect, self._taken = budget, dialect, 0
        self._lock, self._closed = threading.Lock(), False

    def take(self, size: int) -> None:
        """Take bytes. Raises `WireError`: 413 if they never fit, 429 if others have them now."""
        most = self._budget.most
        if self._taken + size > most:
            message = (
                f"Request too large: it needs {self._taken + size:,} bytes, and the limit for all "
                f"requests together is {most:,}. Split the request."
            )
            raise self._dialect.failed(413, "request_too_large", message)
        if not self._budget.add(size):
            message = (
                f"Not enough memory now: the request needs {size:,} bytes, and the requests in "
                f"progress have {self._budget.taken:,} of {most:,}. Retry in 1 s."
            )
            raise self._dialect.failed(429, "rate_limit_exceeded", message)
        self._hold(size)

    async def wait_for(self, size: int) -> None:
        """Take bytes once they are free. Raises `WireError` if they never fit."""
        while not self._budget.add(size):
            if self._taken + size > self._budget.most:
                self.take(size)
            await asyncio.sleep(_AGAIN)
        self._hold(size)

    def another(self) -> Share:
        """Return a separate share, to be closed before this one."""
        return Share(self._budget, self._dialect)

    def close(self) -> None:
        """Give all bytes back, also those that a thread takes later: it may outlive the request."""
        with self._lock:
            self._closed = True
            self._budget.add(-self._taken)
            self._taken = 0

    def _hold(self, size: int) -> None:
        """Count bytes that were taken. Raises RuntimeError after `close`, and gives them back."""
        with self._lock:
            if self._closed:
                self._budget.add(-size)
                raise RuntimeError("The request has ended.")
            self._taken += size


class Places:
    """``max_queue`` places, and the memory and disk that their requests may take together.

    ``begun`` and ``ended`` count the requests that had a place, ``answers`` all, by status.
    """

    def __init__(self, settings: Settings) -> None:
        self.begun = self.ended = 0
        self.answers: Counter[int] = Counter()
        self.memory, self.disk = Budget(settings.max_memory), Budget(settings.max_spooled)
        self._most = settings.max_queue

    @property
    def accepted(self) -> int:
        """The number of requests in progress, also of those whose bodies are being received."""
        return self.begun - self.ended

    def take(self, dialect: Dialect) -> Place:
        """Return a place for a request, before its body is read.

        Raises `WireError` if none is free.
        """
        if self.accepted >= self._most:
            message = f"Too many requests ({self.accepted} in progress). Retry in 1 s."
            raise dialect.failed(429, "rate_limit_exceeded", message)
        self.begun += 1
        return Place(self, dialect)


class Place:
    """The place of one request. ``release`` gives back the models that the request holds.

    ``spool`` is its body of lines, closed when the request ends.
    """

    def __init__(self, places: Places, dialect: Dialect) -> None:
        self.memory, self.disk = Share(places.memory, dialect), Share(places.disk, dialect)
        self.release: Callable[[], None] = lambda: None
        self.spool: IO[bytes] | None = None
        self._places, self._left = places, False

    def leave(self) -> None:
        """Give everything back, once."""
        if self._left:
            return
        self._left = True
        self._places.ended += 1
        self.memory.close()
        self.disk.close()
        self.release()
        if self.spool is not None:
            self.spool.close()
