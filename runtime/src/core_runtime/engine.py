"""The engine's loop over steps, which a backend's subclass computes, and their stopwatch.

Requests wait in a queue; steps run on the model's owner thread, one after another, while there is
something to compute. Other work of that thread (classify, close) runs between two steps.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Literal, NamedTuple, TypeVar

from core.errors import ModelClosedError
from core.kit.base import Check, never_stop
from core_runtime.owner import OwnerThread
from core_runtime.request import Request, own_error
from core_runtime.waiting import PromptJob, WaitingLine

T = TypeVar("T")


class Spent(NamedTuple):
    """Seconds of each kind of work since the model was loaded."""

    prefill: float = 0.0
    decode: float = 0.0


class Stopwatch:
    """The time of each kind of work: one thread works, and any may read, also during a step.

    A call that starts or ends during a step is charged only its part of that step.
    """

    def __init__(self) -> None:
        self._state: tuple[Spent, Literal["prefill", "decode"] | None, float] = (Spent(), None, 0.0)

    @contextmanager
    def on(self, work: Literal["prefill", "decode"]) -> Iterator[None]:
        """Count the time of this block."""
        self._state = (self._state[0], work, time.monotonic())
        try:
            yield
        finally:
            self._state = (self.read(), None, 0.0)

    def read(self) -> Spent:
        """Return the time spent until now, including the running step."""
        spent, work, since = self._state
        running = time.monotonic() - since
        if work == "prefill":
            return Spent(spent.prefill + running, spent.decode)
        if work == "decode":
            return Spent(spent.prefill, spent.decode + running)
        return spent


class Engine(ABC):
    """The engine for all generation of one model: each request's tokens go to its sink.

    A subclass computes the steps. Everything except `submit` and `receive` runs on the owner
    thread.
    """

    def __init__(self, owner: OwnerThread) -> None:
        self._owner = owner
        self._waiting = WaitingLine()
        self._pumping = False  # a step runs, or is queued on the owner thread
        self.watch = Stopwatch()

    def submit(self, jobs: Iterable[PromptJob]) -> None:
        """Queue jobs, in order; from any thread. Raises `core.ModelClosedError`."""
        self._owner.check_fork()
        self._waiting.extend(jobs)
        if not self._owner.post(self.wake):
            raise ModelClosedError

    def receive(self, items: SimpleQueue[T], look: Check = never_stop) -> T:
        """Wait for the next item of a request, polling ``look``; from any thread.

        Raises like `OwnerThread.receive`.
        """
        return self._owner.receive(items, look)

    def wake(self) -> None:
        """Start to run steps, unless they are running."""
        if not self._pumping:
            self._pumping = True
            self._pump()

    def step(self) -> bool:
        """Compute one step; False if there is nothing to do until `wake`. An error ends all."""
        return self._guarded(self._step)

    def shutdown(self, error: BaseException) -> None:
        """End every request with this error, and release all of them."""
        jobs = self._waiting.clear()
        requests = [*self._let_go(), *(request for job in jobs for request in job.requests)]
        for request in requests:
            request.fail(self._failure(error, request))

    @property
    @abstractmethod
    def idle(self) -> bool:
        """True if the engine holds no request."""

    @abstractmethod
    def _step(self) -> bool:
        """Compute one step, for `step`; if it raises, every request ends with the error."""

    @abstractmethod
    def _let_go(self) -> list[Request]:
        """Remove and return all requests that are not waiting, and free their memory."""

    def _failure(self, error: BaseException, request: Request) -> Exception:
        """Return the error of a request when a step has failed with ``error``."""
        return own_error(error)

    def _guarded(self, step: Callable[[], bool]) -> bool:
        try:
            return step()
        except BaseException as error:  # noqa: BLE001 - the thread continues; the callers get it
            self.shutdown(error)
            return True

    def _pump(self) -> None:
        if self.step() and not self.idle:
            self._owner.post(self._pump)
        else:  # `submit`, or memory that a waiting request needs, wakes it
            self._pumping = False
