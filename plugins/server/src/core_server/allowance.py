"""The memory that all requests may take together, in bytes: bodies, prompts, results, answers."""

from __future__ import annotations

import asyncio
import threading

from core.wires.errors import OPENAI, Dialect

_AGAIN = 0.05  # seconds


class Allowance:
    """``most`` bytes, of which each request takes a `Share`."""

    def __init__(self, most: int) -> None:
        self.most, self.taken = most, 0
        self._lock = threading.Lock()

    def add(self, size: int) -> bool:
        """Take some bytes, or give some back. Returns whether they were there."""
        with self._lock:
            fits = size <= 0 or self.taken + size <= self.most
            self.taken += size if fits else 0
            return fits


class Share:
    """The memory that one request has taken, until it is closed. Any thread may use it."""

    def __init__(self, allowance: Allowance, dialect: Dialect = OPENAI) -> None:
        self._allowance, self._dialect, self._taken = allowance, dialect, 0

    def take(self, size: int) -> None:
        """Take bytes. Raises `WireError`: 413 where they never fit, 429 where others have them."""
        most = self._allowance.most
        if self._taken + size > most:
            told = (
                f"This takes {self._taken + size:,} bytes, and all requests together have "
                f"{most:,}. Ask for less at once."
            )
            raise self._dialect.failed(413, "request_too_large", told)
        if not self._allowance.add(size):
            told = (
                f"This takes {size:,} bytes, and the requests that are being answered have "
                f"{self._allowance.taken:,} of {most:,}. Try again in a second."
            )
            raise self._dialect.failed(429, "rate_limit_exceeded", told)
        self._taken += size

    async def wait_for(self, size: int) -> None:
        """Take bytes once they are there. Raises `WireError` where they never fit."""
        while not self._allowance.add(size):
            if self._taken + size > self._allowance.most:
                self.take(size)
            await asyncio.sleep(_AGAIN)
        self._taken += size

    def another(self) -> Share:
        """Return one of its own, to be closed before."""
        return Share(self._allowance, self._dialect)

    def close(self) -> None:
        """Give all of it back."""
        self._allowance.add(-self._taken)
        self._taken = 0
