"""Places for requests in progress, with their memory and disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import IO

from core_server.allowance import Allowance, Share
from core_server.settings import Settings
from core_wires.errors import Dialect


class Places:
    """``max_queue`` places, and the memory and disk that their requests may take together.

    ``begun`` and ``ended`` count the requests that had a place, ``answers`` all, by status.
    """

    def __init__(self, settings: Settings) -> None:
        self.begun = self.ended = 0
        self.answers: Counter[int] = Counter()
        self.memory, self.disk = Allowance(settings.max_memory), Allowance(settings.max_spooled)
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
