"""Memory budget of all requests together, in bytes: bodies, prompts, results, answers."""

from __future__ import annotations

import asyncio
import threading

from core_wires.errors import OPENAI, Dialect

_AGAIN = 0.05  # seconds


class Allowance:
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

    def __init__(self, allowance: Allowance, dialect: Dialect = OPENAI) -> None:
        self._allowance, self._dialect, self._taken = allowance, dialect, 0
        self._lock, self._closed = threading.Lock(), False

    def take(self, size: int) -> None:
        """Take bytes. Raises `WireError`: 413 if they never fit, 429 if others have them now."""
        most = self._allowance.most
        if self._taken + size > most:
            message = (
                f"Request too large: it needs {self._taken + size:,} bytes, and the limit for all "
                f"requests together is {most:,}. Split the request."
            )
            raise self._dialect.failed(413, "request_too_large", message)
        if not self._allowance.add(size):
            message = (
                f"Not enough memory now: the request needs {size:,} bytes, and the requests in "
                f"progress have {self._allowance.taken:,} of {most:,}. Retry in 1 s."
            )
            raise self._dialect.failed(429, "rate_limit_exceeded", message)
        self._hold(size)

    async def wait_for(self, size: int) -> None:
        """Take bytes once they are free. Raises `WireError` if they never fit."""
        while not self._allowance.add(size):
            if self._taken + size > self._allowance.most:
                self.take(size)
            await asyncio.sleep(_AGAIN)
        self._hold(size)

    def another(self) -> Share:
        """Return a separate share, to be closed before this one."""
        return Share(self._allowance, self._dialect)

    def close(self) -> None:
        """Give all bytes back, those that a thread takes later too: it works on after the request
        has ended."""
        with self._lock:
            self._closed = True
            self._allowance.add(-self._taken)
            self._taken = 0

    def _hold(self, size: int) -> None:
        """Count bytes that were taken. Raises RuntimeError after `close`, and gives them back."""
        with self._lock:
            if self._closed:
                self._allowance.add(-size)
                raise RuntimeError("The request has ended.")
            self._taken += size
