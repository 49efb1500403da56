"""The requests that wait for a slot, in order of arrival."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core_mlx_native.request import Request

_SWEEP_SECONDS = 0.05  # how often waiting requests are asked whether they are still wanted


@dataclass(frozen=True, slots=True)
class Job:
    """One prompt, and the requests that continue it: one prefill serves them all."""

    ids: Sequence[int]
    requests: tuple[Request, ...]

    def wanted(self) -> bool:
        """Whether a request of it goes on; those that were interrupted are ended here."""
        for request in self.requests:
            error = None if request.ended else request.interruption()
            if error is not None:
                request.fail(error)
        return any(not request.ended for request in self.requests)


class WaitingLine:
    """First come, first served. Any thread may add; the owner thread takes."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._lock = threading.Lock()
        self._swept = 0.0

    def __len__(self) -> int:
        return len(self._jobs)

    def extend(self, jobs: Iterable[Job]) -> None:
        """Add jobs at the end."""
        with self._lock:
            self._jobs.extend(jobs)

    def take(self, slots: int, anyhow: bool) -> list[Job]:
        """Those at the front that ``slots`` have room for; with ``anyhow``, at least one."""
        taken: list[Job] = []
        with self._lock:
            while self._jobs and slots > 0:
                job = self._jobs[0]
                if len(job.requests) > slots and (taken or not anyhow):
                    break
                self._jobs.popleft()
                if job.wanted():
                    taken.append(job)
                    slots -= len(job.requests)
        return taken

    def sweep(self) -> None:
        """End the requests that were cancelled or timed out while they waited."""
        now = time.monotonic()
        if now - self._swept < _SWEEP_SECONDS:
            return
        self._swept = now
        with self._lock:
            self._jobs = deque(job for job in self._jobs if job.wanted())

    def clear(self) -> list[Job]:
        """Take them all."""
        with self._lock:
            jobs, self._jobs = list(self._jobs), deque()
        return jobs
