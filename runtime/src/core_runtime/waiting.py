"""The requests that wait for a slot, in order of arrival."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core_runtime.request import Request

_SWEEP_SECONDS = 0.05  # between two checks of waiting requests for cancel and timeout


@dataclass(frozen=True, slots=True)
class PromptJob:
    """One prompt and the requests that continue it, which share its prefill."""

    ids: Sequence[int]
    requests: tuple[Request, ...]

    def wanted(self) -> bool:
        """End interrupted requests; return True if any request is left."""
        for request in self.requests:
            request.look()
        return any(not request.ended for request in self.requests)


class WaitingLine:
    """A queue of jobs in order of arrival. Any thread may add; the owner thread takes."""

    def __init__(self) -> None:
        self._jobs: deque[PromptJob] = deque()
        self._lock = threading.Lock()
        self._swept = 0.0

    def __len__(self) -> int:
        return len(self._jobs)

    def extend(self, jobs: Iterable[PromptJob]) -> None:
        """Add jobs at the end."""
        with self._lock:
            self._jobs.extend(jobs)

    def take(self, slots: int, anyhow: bool) -> list[PromptJob]:
        """Take the first jobs that fit into ``slots`` free slots; ended ones are dropped.

        With ``anyhow`` the first job may have more requests than that: it would wait forever if
        nothing else runs.
        """
        taken: list[PromptJob] = []
        while slots > 0:
            job = self._pop(slots, anyhow and not taken)
            if job is None:
                break
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
        # Not under the lock: a cancel's is_set() may wait for a thread that wants to add a job.
        wanted = [job for job in self.clear() if job.wanted()]
        with self._lock:
            self._jobs.extendleft(reversed(wanted))

    def clear(self) -> list[PromptJob]:
        """Take all jobs out of the line."""
        with self._lock:
            jobs, self._jobs = list(self._jobs), deque()
        return jobs

    def _pop(self, slots: int, anyhow: bool) -> PromptJob | None:
        with self._lock:
            if not self._jobs or (len(self._jobs[0].requests) > slots and not anyhow):
                return None
            return self._jobs.popleft()
