"""Requests to a worker, and to the next one when a worker has died."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import msgspec

from core.errors import CoreError, ModelClosedError
from core.kit.base import Check, check_process
from core.system.child_process import started
from core_mlx_lm_bridge import failures
from core_mlx_lm_bridge.compiling import compiling_environment
from core_mlx_lm_bridge.process import WorkerProcess
from core_mlx_lm_bridge.protocol import (
    Answer,
    Cancel,
    Chat,
    Done,
    Error,
    Generate,
    Load,
    Ok,
    ProtocolError,
    Quit,
    TokenAnswer,
    decode_answer,
    encode,
)

_LOG = logging.getLogger("core_mlx_lm_bridge")
_LOOK_SECONDS = 0.02  # interval at which a waiting caller polls its cancel and its timeout


class _TooLateError(Exception):
    """The internal error of waiting too long for a last answer."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The command and the first message of a worker; ``silence_timeout`` is in seconds.

    The environment may hold secrets, and is not in the repr.
    """

    backend: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    load: Load
    silence_timeout: float


class WorkerSession:
    """The workers of a model, one after another. One caller at a time; any thread may `close`.

    Every failure of a worker ends it and raises `BackendProcessError`; the next request starts a
    new one, which loads the model again.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._worker: WorkerProcess | None = None
        self._id = 0
        self._stale: set[int] = set()  # cancelled; their last answer is still to come
        self._abandoned: deque[int] = deque()
        self._lock = threading.Lock()  # locked during each use of the worker
        self._closed = False
        self._pid = os.getpid()

    def start(self, check: Check) -> Ok:
        """Start a worker and load the model. Raises the error of the load."""
        start = time.monotonic()
        try:
            self._worker = worker = self._started()
            self._stale.clear()
            load = self._send(self._settings.load)
            answer = self._answer(load, check, "while it loaded the model")
        except BaseException:
            self._end_worker()
            raise
        if not isinstance(answer, Ok):
            raise self._nonsense(f"the answer to the load is {type(answer).__name__}")
        _LOG.info("worker %d has loaded in %.2f s", worker.pid, time.monotonic() - start)
        return answer

    def _started(self) -> WorkerProcess:
        settings = self._settings
        try:
            environment = {**compiling_environment(), **settings.environment}
            return started(partial(WorkerProcess, settings.command, environment))
        except OSError as error:
            raise failures.not_started(settings.command[0], error, settings.backend) from error

    def ask(self, request: Generate | Chat, check: Check) -> int:
        """Send a request and return its id. Starts a worker if none runs.

        Raises `BackendProcessError` if one has died since the last request.
        """
        self.check_usable()
        worker = self._worker
        if worker is not None and not worker.alive:
            self._worker = None
            raise failures.died(worker, "while it was idle")
        if self._worker is None:
            self.start(check)
        with self._lock:
            self._cancel_abandoned()
        return self._send(request)

    def answer(self, id: int, check: Check) -> TokenAnswer | Done:
        """Return the next answer to a request.

        Raises the error in it, and the errors of ``check``.
        """
        answer = self._answer(id, check, "while it generated")
        if isinstance(answer, Ok):
            raise self._nonsense("the answer to a generation has the facts of the model")
        return answer

    def stop(self, id: int, seconds: float) -> Done | None:
        """Cancel a request and wait ``seconds`` for its last answer; a later one is skipped."""
        end = time.monotonic() + seconds

        def check() -> None:
            if time.monotonic() >= end:
                raise _TooLateError

        try:
            with self._lock:
                self._used().send(encode(Cancel(id=id)))
            while not isinstance(answer := self._answer(id, check, "while it stopped"), Done):
                check()
            return answer
        except (_TooLateError, CoreError):  # a dead worker does not matter to a caller that leaves
            self._stale.add(id)
            return None

    def abandon(self, id: int) -> None:
        """Cancel from a finalizer: at once if the worker is free, else before the next request."""
        if os.getpid() != self._pid:
            return
        self._abandoned.append(id)
        if self._lock.acquire(blocking=False):
            try:
                self._cancel_abandoned()
            finally:
                self._lock.release()

    def close(self) -> None:
        """End the worker: ask, then terminate, then kill it. A waiting call gets an error."""
        self._closed = True
        if os.getpid() != self._pid:
            return  # a fork: the worker is its parent's
        # With a limit: a signal handler may have interrupted the thread that has locked it.
        locked = self._lock.acquire(timeout=1.0)
        try:
            worker, self._worker = self._worker, None
            if worker is not None:
                worker.quit(encode(Quit()))
        finally:
            if locked:
                self._lock.release()

    def _send(self, message: Load | Generate | Chat) -> int:
        with self._lock:
            self._id += 1
            self._used().send(encode(msgspec.structs.replace(message, id=self._id)))
        return self._id

    def _answer(self, id: int, check: Check, when: str) -> Ok | TokenAnswer | Done:
        heard = time.monotonic()
        while True:
            with self._lock:
                worker = self._used()
                answer = self._next(worker)
                tail = worker.stderr_tail() if isinstance(answer, Error) else ""

            # Nothing came for a while: the caller may have given up, or the worker have died.
            if answer is None:
                check()
                self._check_progress(worker, heard, when)
                continue
            heard = time.monotonic()
            if 0 < answer.id < id and answer.id not in self._stale:
                with self._lock:  # interrupted before its caller knew its number
                    self._cancel(answer.id)

            # Late answers to cancelled requests are skipped.
            if answer.id in self._stale:
                self._forget(answer)
                check()
            elif isinstance(answer, Error) and answer.id in (id, 0):
                raise failures.of_answer(answer, self._settings.backend, tail)
            elif isinstance(answer, Error) or answer.id != id:
                raise self._nonsense(f"an answer to request {answer.id}, expected {id}")
            else:
                return answer

    def _next(self, worker: WorkerProcess) -> Answer | None:
        try:
            line = worker.line(_LOOK_SECONDS)
            return None if line is None else decode_answer(line)
        except ProtocolError as error:
            raise self._nonsense(str(error)) from None

    def _check_progress(self, worker: WorkerProcess, heard: float, when: str) -> None:
        with self._lock:
            self._used()
            if worker.ended:
                self._worker = None
                raise failures.died(worker, when)
            limit = self._settings.silence_timeout
            if time.monotonic() - heard > limit:
                self._worker = None
                raise failures.silent(worker, limit, when)

    def _forget(self, answer: Answer) -> None:
        if isinstance(answer, Done | Error):
            self._stale.discard(answer.id)

    def _cancel(self, id: int) -> None:
        if self._worker is not None:
            self._stale.add(id)
            self._worker.send(encode(Cancel(id=id)))

    def _cancel_abandoned(self) -> None:
        with suppress(IndexError):
            while True:
                self._cancel(self._abandoned.popleft())

    def _nonsense(self, what: str) -> Exception:
        worker, self._worker = self._worker, None
        return failures.nonsense(worker, what) if worker is not None else ModelClosedError()

    def _end_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()

    def _used(self) -> WorkerProcess:
        self.check_usable()
        if self._worker is None:
            raise ModelClosedError
        return self._worker

    def check_usable(self) -> None:
        """Raise `ModelClosedError` after ``close()``, and in a fork."""
        if self._closed:
            raise ModelClosedError
        check_process(self._pid)
