"""The place of a request among those that are answered at once, and what it has with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import IO

from core.wires.errors import Dialect
from core_server.allowance import Allowance, Share
from core_server.settings import Settings


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
        """The requests that are being answered now, or whose bodies are on their way."""
        return self.begun - self.ended

    def take(self, dialect: Dialect) -> Place:
        """A place for a request, before its body is read. Raises `WireError` where none is free."""
        if self.accepted >= self._most:
            told = f"{self.accepted} requests are being answered. Try again in a second."
            raise dialect.failed(429, "rate_limit_exceeded", told)
        self.begun += 1
        return Place(self, dialect)


class Place:
    """One of them. ``release`` gives back the models that its request holds, ``spool`` is its body.

    The body is closed when the request leaves, where it is on disk.
    """

    def __init__(self, places: Places, dialect: Dialect) -> None:
        self.memory, self.disk = Share(places.memory, dialect), Share(places.disk, dialect)
        self.release: Callable[[], None] = lambda: None
        self.spool: IO[bytes] | None = None
        self._places, self._left = places, False

    def leave(self) -> None:
        """Give all back, once."""
        if self._left:
            return
        self._left = True
        self._places.ended += 1
        self.memory.close()
        self.disk.close()
        self.release()
        if self.spool is not None:
            self.spool.close()
