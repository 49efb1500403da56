"""One owner thread per model, for libraries whose work belongs to one thread.

Calls from any thread are queued and run one after another, in order of arrival.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - before _before_fork: a job may need its lock
import copy
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Self, TypeVar

from core.errors import BackendUnavailableError, ModelBusyError, ModelClosedError
from core.kit.base import Check, never_stop
from core_runtime.threads import LOOK_SECONDS, aside, awaited, here

T = TypeVar("T")

_AFTER_FORK = (
    "{} in the process that this one was forked from, and does not work in a fork. "
    "Start processes with multiprocessing.get_context('spawn'), and load the model in each."
)
_OWN_THREAD = (
    "This code runs on the model's own thread (a finalizer, or the is_set() of a cancel), which "
    "would wait for itself. Call the model from another thread."
)
_running: set[OwnerThread] = set()
_forking = threading.Lock()
_EXIT_SECONDS = 30
_FORK_PATIENCE = 100  # tenths of a second: a job may hang because of the thread that forks


class FirstProcess:
    """The process in which a library is first used: a fork has none of the threads that it starts.

    ``library`` is the library's name, for the error.
    """

    def __init__(self, library: str) -> None:
        self._library = library
        self._process: int | None = None

    def check(self, backend: str) -> None:
        """Raise `core.BackendUnavailableError` in a fork of that process."""
        if self._process not in (None, os.getpid()):
            raise BackendUnavailableError(backend, _AFTER_FORK.format(f"{self._library} was used"))

    def mark(self) -> None:
        """Record that the library is used in this process."""
        self._process = os.getpid()


class OwnerThread:
    """A thread that runs the jobs of one model, or of several that share weights.

    ``within``: a context that the thread enters until it ends. ``settle``: waits for the device
    before a fork; it may raise RuntimeError. ``turn``: a context entered for each job, and left
    while the job waits for another thread.
    """

    def __init__(
        self,
        name: str,
        within: Callable[[], AbstractContextManager[object]] = nullcontext,
        settle: Callable[[], None] = lambda: None,
        turn: AbstractContextManager[object] = nullcontext(),  # noqa: B008 - it has no state
    ) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )
        # Reentrant: the collector may run `stop`, a dropped model's finalizer, while it is locked.
        self._lock = threading.RLock()
        self._closed, self._holders = False, _Holders()
        self._within, self._settle, self._turn = within, settle, turn
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._serve, name=f"core-{name}", daemon=True)
        self._pause: _Pause | None = None

        try:
            with _forking:
                self._thread.start()  # RuntimeError when the system has no thread
                _running.add(self)
        except BaseException:  # also an interrupt, which comes while start() waits
            self.stop()
            raise

    def run(self, job: Callable[[], T], check: Check = never_stop) -> T:
        """Run ``job`` on the thread and return its result, or raise its error.

        ``check`` is polled while the job runs. If it raises, or the caller is interrupted, a job
        that has not started is withdrawn. On the owner thread itself the job runs at once. Raises
        `ModelClosedError` once closed.
        """
        future = self.submit(job)
        try:
            return awaited(future, check)
        except BaseException:
            future.cancel()
            raise

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Queue a job like `run`, and return its future."""
        self.check_fork()
        future: Future[T] = Future()
        with self._lock:
            self._check_open()
            if not self._here:
                self._jobs.put((future, job))
        if self._here:
            _do(future, job)
        return future

    def post(self, job: Callable[[], None]) -> bool:
        """Queue a job without waiting; it must not raise. Return False once closed."""
        self.check_fork()
        with self._lock:
            closed = self._closed or self._holders.over
            if not closed:
                self._jobs.put((Future(), job))
            return not closed

    def another(self) -> Self:
        """Return the same thread for one more model; it ends when the last of them is closed.

        Raises `ModelClosedError`.
        """
        with self._lock:
            self._check_open()
            other = copy.copy(self)  # only the closed state is separate
            self._holders.count += 1
            return other

    def receive(self, items: queue.SimpleQueue[T], look: Check = never_stop) -> T:
        """Wait for an item that a job puts into a queue, polling ``look``.

        Where waiting would never end, this raises `ModelBusyError` (on the owner thread itself) or
        `ModelClosedError` (after the thread's end, or in a fork).
        """
        with suppress(queue.Empty):
            return items.get_nowait()
        self.check_fork()
        if self._here:
            raise ModelBusyError(_OWN_THREAD)

        with aside() if here.turn else nullcontext():  # most callers do not run a job
            while True:
                # Checked first: once the thread has ended, all of its items are in the queue.
                alive = self._thread.is_alive()
                with suppress(queue.Empty):
                    return items.get(timeout=LOOK_SECONDS) if alive else items.get_nowait()
                if not alive:
                    raise ModelClosedError
                look()

    def check_fork(self) -> None:
        """Raise `ModelClosedError` in a fork, which copies no threads: waiting would not end."""
        if self._forked:
            raise ModelClosedError(_AFTER_FORK.format("The model was loaded"))

    def close(self, last: Callable[[], None]) -> None:
        """Run ``last`` after all queued jobs, then end the thread. Twice is fine.

        If `another` still holds the thread, it continues. Waits for that, unless it is called on
        this thread itself.
        """
        if self._forked:
            return

        future: Future[None] = Future()
        with self._lock:
            if self._closed:
                return
            alone = self._holders.count == 1
            puts = map(self._jobs.put, ((future, last), None) if alone else ((future, last),))
            self._closed = True
            list(puts)  # both in one call: an interrupt between them would leave the thread
            self._holders.count -= 1

        if not alone and not self._here:
            awaited(future, never_stop)
        elif not self._here:
            with aside():
                self._thread.join()
                # Only after the join: an interrupt within result() may leave the future's lock
                # taken, and the thread would wait for it.
                future.result()

    def stop(self) -> None:
        """End the thread without waiting, for models that are dropped without `close`."""
        if self._forked:
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                self._holders.count -= 1
                if not self._holders.count:
                    self._jobs.put(None)

    def leave(self) -> None:
        """End the thread after its current job, and wait for it, at the process's end.

        The wait is limited, so the process ends even if a device hangs.
        """
        if self._forked:
            return
        with self._lock:
            self._holders.over = True
            with suppress(queue.Empty):
                while True:
                    self._jobs.get_nowait()
            self._jobs.put(None)
        self._thread.join(_EXIT_SECONDS)

    def pause(self) -> None:
        """Stop the thread between two jobs, with nothing in flight, until `resume`."""
        if self._here:
            self._settle()
            return
        self._pause = pause = _Pause(self._settle)
        self._jobs.put((Future(), lambda: None))  # it may wait for a job
        with aside():  # this thread may run the job of another model
            for _ in range(_FORK_PATIENCE):
                if pause.reached.wait(0.1) or not self._thread.is_alive():
                    return

    def resume(self) -> None:
        """Continue after `pause`."""
        if self._pause is not None:
            self._pause.over.set()

    def _check_open(self) -> None:
        if self._closed or self._holders.over:
            raise ModelClosedError

    @property
    def _forked(self) -> bool:
        return os.getpid() != self._process

    @property
    def _here(self) -> bool:
        return threading.get_ident() == self._thread.ident

    def _serve(self) -> None:
        with self._within():
            while (item := self._jobs.get()) is not None:
                if self._pause is not None:
                    self._pause.keep()
                with self._turn:
                    here.turn = self._turn
                    _do(*item)
                    here.turn = None
                del item  # no reference to results while waiting
        _running.discard(self)


class _Holders:
    """The number of models that use a thread; ``over``: the process ends."""

    def __init__(self) -> None:
        self.count, self.over = 1, False


def _do(future: Future[Any], job: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(job())
    except BaseException as error:  # noqa: BLE001 - carried to the caller
        future.set_exception(error)


class _Pause:
    """A stop between two jobs: the thread sets ``reached``, and the requester ``over``."""

    def __init__(self, settle: Callable[[], None]) -> None:
        self._settle = settle
        self.reached, self.over = threading.Event(), threading.Event()

    def keep(self) -> None:
        """Stop here until the pause is over."""
        if not self.over.is_set():
            with suppress(RuntimeError):  # raised again where the result is read
                self._settle()
            self.reached.set()
            self.over.wait()


@atexit.register
def _leave_all() -> None:
    """End all threads: one that returns from C to an ended interpreter aborts the process."""
    for owner in list(_running):
        owner.leave()


def _before_fork() -> None:
    """Pause all threads: OpenBLAS ends its own at a fork, and a running product would hang."""
    _forking.acquire()
    for owner in list(_running):
        owner.pause()


def _after_fork() -> None:
    for owner in list(_running):
        owner.resume()
    _forking.release()


def _in_fork() -> None:
    _running.clear()  # a fork copies no threads
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_fork)
