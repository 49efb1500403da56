"""What the parts of this package need of an engine, which each backend has of its own."""

from __future__ import annotations

from collections.abc import Iterable
from queue import SimpleQueue
from typing import Protocol, TypeVar

from core.serving.stopwatch import Stopwatch
from core.serving.waiting import Job

T = TypeVar("T")


class Engine(Protocol):
    """Runs jobs on a thread of its own, and sends each request's tokens to its sink."""

    @property
    def watch(self) -> Stopwatch:
        """Its time, by kind of work."""
        ...

    def submit(self, jobs: Iterable[Job], /) -> None:
        """Queue jobs, in order; from any thread. Raises `core.ModelClosedError`."""
        ...

    def receive(self, items: SimpleQueue[T], /) -> T:
        """Wait for what a request sends; raises instead of waiting for ever."""
        ...
