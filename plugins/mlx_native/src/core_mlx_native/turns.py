"""MLX's default device, which is one for the process, held by the jobs of each model in turn.

MLX computes on the default device, which ``mx.stream`` too sets for all threads
(``mutable_default_device`` in its device.cpp). So a job holds the device of its model: jobs on the
same one run at the same time, those on another wait until these are done. Between jobs the device
is what the user's own code has set.
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
    """A setting of the process that jobs hold at one value: ``read`` tells it, ``write`` sets it.

    Whoever waits is served in the order of coming, and nobody passes one who waits. A job among
    others of the same value takes a microsecond for it.
    """

    def __init__(self, read: Callable[[], D], write: Callable[[D], None]) -> None:
        self._read, self._write = read, write
        self._lock = threading.Lock()
        self._inside = 0  # jobs that hold the value now
        self._held = self._outside = read()  # their value, and the one when nobody holds any
        self._waiting: deque[tuple[D, threading.Lock]] = deque()

    def at(self, value: D) -> Turn[D]:
        """A context that holds this value, for jobs on any thread; not for one within another."""
        return Turn(self, value)

    def enter(self, value: D) -> None:
        """Hold the value from now on; wait while others hold another one."""
        with self._lock:
            if not self._inside:
                self._outside = self._held = self._read()
                self._hold(value)
            if self._held == value and not self._waiting:
                self._inside += 1
                return

            called = threading.Lock()
            called.acquire()
            self._waiting.append((value, called))
        called.acquire()  # whoever lets this job in has counted it as being inside

    def leave(self) -> None:
        """Hold it no longer; the last one lets those in who wait, or sets back what was outside."""
        with self._lock:
            self._inside -= 1
            if self._inside or (self._held == self._outside and not self._waiting):
                return
            if self._read() != self._held:  # the user's own code has set it meanwhile
                self._outside = self._read()

            # All who want the value of the first, and stand behind one another.
            self._hold(self._waiting[0][0] if self._waiting else self._outside)
            while self._waiting and self._waiting[0][0] == self._held:
                self._waiting.popleft()[1].release()
                self._inside += 1

    def _hold(self, value: D) -> None:
        if value != self._held:
            self._write(value)
            self._held = value


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
