"""MLX's process-wide default device, held by the jobs of each model in turn.

MLX computes on the default device, which even ``mx.stream`` sets for all threads
(``mutable_default_device`` in its device.cpp). So a job holds the device of its model: jobs on the
same device run concurrently, jobs on another one wait until they are done. Between jobs the device
is the one set by the user's code.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar

import mlx.core as mx

D = TypeVar("D")


class Gate(Generic[D]):
    """A process-wide setting that jobs hold at one value: ``read`` returns it, ``write`` sets it.

    Waiting jobs are served first come, first served. A job among others with the same value takes a
    microsecond for it.
    """

    def __init__(self, read: Callable[[], D], write: Callable[[D], None]) -> None:
        self._read, self._write = read, write
        self._lock = threading.Lock()
        self._inside = 0  # jobs that hold the value now
        self._value = self._outside = read()  # their value, and the one outside of jobs
        self._waiting: deque[tuple[D, threading.Lock]] = deque()

    def at(self, value: D) -> Turn[D]:
        """Return a context that holds this value, for jobs on any thread; do not nest it."""
        return Turn(self, value)

    def enter(self, value: D) -> None:
        """Hold the value from now on; wait while other jobs hold a different one."""
        with self._lock:
            if not self._inside:
                self._outside = self._value = self._read()
                self._hold(value)
            if self._value == value and not self._waiting:
                self._inside += 1
                return

            called = threading.Lock()
            called.acquire()
            self._waiting.append((value, called))
        called.acquire()  # the job that lets this one in has counted it as inside

    def leave(self) -> None:
        """Release the value; the last holder admits waiting jobs, or restores the outside value."""
        with self._lock:
            self._inside -= 1
            if self._inside or (self._value == self._outside and not self._waiting):
                return
            if self._read() != self._value:  # the user's code has set it meanwhile
                self._outside = self._read()

            # All consecutive waiting jobs with the value of the first.
            self._hold(self._waiting[0][0] if self._waiting else self._outside)
            while self._waiting and self._waiting[0][0] == self._value:
                self._waiting.popleft()[1].release()
                self._inside += 1

    def _hold(self, value: D) -> None:
        if value != self._value:
            self._write(value)
            self._value = value


@dataclass(frozen=True, slots=True)
class Turn(Generic[D]):
    """A context in which a gate's value is ``value``."""

    gate: Gate[D]
    value: D

    def __enter__(self) -> None:
        self.gate.enter(self.value)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.gate.leave()


default_device = Gate(mx.default_device, mx.set_default_device)
"""The gate of MLX's default device."""
