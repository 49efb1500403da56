"""Running checks: one on a subject, and many in this process, each within a time limit.

One thread does the work, so that the caller can stop waiting for it.
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from core.errors import CoreError, UnsupportedOptionError, described
from core.protocols import Capability
from core_conformance.checking.budget import pass_seconds
from core_conformance.checking.check import (
    Check,
    NotTestable,
    Violation,
    begin_tally,
    count_compared,
)
from core_conformance.checking.scratch import settle
from core_conformance.checking.script import record
from core_conformance.checking.subject import Effort, Subject
from core_conformance.running.result import Result, Status
from core_conformance.running.target import CannotStart, Target

T = TypeVar("T")

_SLICE = 0.5  # seconds: a signal that comes just before a wait begins is heard when it ends
NOTHING = (
    "the check compared nothing, because nothing that its clause is about occurred: use a model "
    "that continues for a dozen tokens, depends on its prompts, and knows non-Latin scripts"
)
"""The reason of a check that compared nothing and gives none."""
LIMIT = 120.0
"""Seconds that a check may take unless another limit is set or the model is slow."""
DEEP_LIMIT = 3600.0
"""Seconds for a sweep that is not cut."""
PASSES = 400
"""Passes of the model, of twenty tokens each, for which a check has time in any case."""


class StillRunning(BaseException):
    """The work did not end within its limit, and still runs. No ``except Exception`` takes it."""


class Worker:
    """Does one thing at a time, always in the same thread. After `StillRunning` it is of no use.

    The thread is a daemon: what hangs in it does not keep the interpreter from ending. A hang
    that holds the interpreter's lock is not noticed; only a process of its own helps there.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        thread = threading.Thread(target=self._work, name="conformance", daemon=True)
        thread.start()

    def run(self, job: Callable[[], T], seconds: float) -> T:
        """Return or raise what ``job`` does. Raises `StillRunning` after ``seconds``."""
        future: Future[T] = Future()
        self._jobs.put((future, job))
        end = time.monotonic() + seconds
        while not wait((future,), max(0.0, min(_SLICE, end - time.monotonic()))).done:
            if time.monotonic() >= end:
                raise StillRunning
        return future.result()

    def stop(self) -> None:
        """Let the thread end after what it does now."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, call = job
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - handed to the caller, whatever it is
                future.set_exception(error)
            del future, call, job  # a result or an error may hold a whole model


class Runner(Protocol):
    """A way to run checks on one target."""

    def start(self) -> None:
        """Load the model. Raises `CoreError` when no check can run."""
        ...

    def run(self, check: Check) -> Result:
        """Run one check; a fault of the backend is in the result, not raised."""
        ...

    def go(self, effort: Effort) -> None:
        """Go so far from the next check on."""
        ...

    def stop(self) -> None:
        """Close what was opened."""
        ...

    @property
    def ended(self) -> str:
        """The reason why no further check can run; empty while they can."""
        ...

    @property
    def hangs(self) -> bool:
        """True when something still runs in this process, for which Python would wait."""
        ...


class InProcess:
    """Runs checks in a thread of this process, with one model for all. A hang ends the run."""

    def __init__(self, target: Target, limit: float | None = None) -> None:
        self._target, self._asked = target, limit
        self._limit = LIMIT if limit is None else limit
        self._subject: Subject | None = None
        self._worker = Worker()
        self.ended = ""

    @property
    def hangs(self) -> bool:
        """True when a check did not end: it still runs."""
        return bool(self.ended)

    def start(self) -> None:
        """Load the model; raises `CoreError`."""
        self._subject = subject = self._target.subject()
        try:
            self._worker.run(lambda: subject.model, self._limit)
            self._limit = self._worker.run(lambda: limit_for(subject, self._asked), self._limit)
        except StillRunning:
            self.ended = f"loading did not end within {self._limit:g} s"
            why = f"{self.ended}. Raise the time limit, or use a smaller model."
            raise CannotStart(not_loaded(self._target, why)) from None
        except CoreError:
            raise
        except (Exception, SystemExit) as error:
            raise CannotStart(not_loaded(self._target, described(error))) from error

    def run(self, check: Check) -> Result:
        """Run one check; after one that hung, the next ones are not run."""
        subject = self._subject
        if self.ended or subject is None:
            return Result(check.id, Status.NOT_RUN, self.ended or "the model is not loaded")

        try:
            result = self._worker.run(lambda: run_check(check, subject), self._limit)
        except StillRunning:
            self.ended = f"{check.id} did not end within {self._limit:g} s, and still runs"
            return timed_out(check, self._limit)
        except KeyboardInterrupt:
            self.ended = f"interrupted in {check.id}"
            raise

        if result.status is Status.FAILED:
            self._close(subject)  # what it left shall not fail the next check as well
        return result

    def go(self, effort: Effort) -> None:
        """Go so far from the next check on."""
        if self._subject is not None:
            self._subject.effort = effort

    def stop(self) -> None:
        """Close the model, unless a check still works with it."""
        if self._subject is not None and not self.ended:
            self._close(self._subject)
        self._worker.stop()

    def _close(self, subject: Subject) -> None:
        # Whether close() does what it should is for the checks to say.
        try:
            with contextlib.suppress(Exception):
                self._worker.run(subject.close, self._limit)
        except StillRunning:
            self.ended = f"closing the model did not end within {self._limit:g} s"


def run_check(check: Check, subject: Subject) -> Result:
    """Run a check in this thread, or the refusal of what it needs and is not declared.

    Never raises but for KeyboardInterrupt: whatever the backend raises is the check's failure.
    """
    counted = begin_tally()
    record.begin()
    result = _run_check(check, subject)
    settle(f"{result.reason}\n{result.call}" if subject.keeps_files else "")
    if result.status is Status.PASSED and not counted.compared:
        result = replace(result, status=Status.NOT_TESTABLE, reason=NOTHING)
    return replace(result, compared=counted.compared, left_out=tuple(counted.left_out))


def _run_check(check: Check, subject: Subject) -> Result:
    # Here, for it takes its prompts at import, as the checks do (`checking.material`).
    from core_conformance.checking.applies import may_refuse, ready, refuses

    missing, start = None, time.perf_counter()

    try:
        missing = check.missing(subject.capabilities)
        if missing is None:
            ready(check, subject)
            check.run(subject)
        else:
            refuses(subject, missing)
    except KeyboardInterrupt:
        raise

    # Not the backend's fault: the model has nothing to look at.
    except NotTestable as error:
        seconds = time.perf_counter() - start
        return Result(check.id, Status.NOT_TESTABLE, str(error), seconds)
    except BaseException as error:  # noqa: BLE001 - a backend may also call sys.exit
        seconds = time.perf_counter() - start
        if isinstance(error, UnsupportedOptionError) and may_refuse(subject, error):
            count_compared()  # the refusal
            return Result(check.id, Status.PASSED, "", seconds, error.option)
        return _failed(check, missing, error, seconds)

    return Result(check.id, Status.PASSED, "", time.perf_counter() - start, missing or "")


def limit_for(subject: Subject, requested: float | None) -> float:
    """Return the time limit of a check in seconds: the requested one, or enough for a slow model.

    A model that raises here gets the usual time: what is wrong with it is for the checks to say.
    """
    if requested is not None:
        return requested
    if subject.effort.deep:
        return DEEP_LIMIT + subject.effort.seconds
    with contextlib.suppress(Exception):
        return max(LIMIT, PASSES * pass_seconds(subject))
    return LIMIT


def timed_out(check: Check, limit: float) -> Result:
    """Return the result of a check that did not end."""
    reason = f"did not end within {limit:g} s: it hangs, or the limit is too low for this machine"
    return Result(check.id, Status.TIMEOUT, reason, limit)


def not_loaded(target: Target, why: str) -> str:
    """Return the message for a model that the backend under test does not load."""
    return f"Backend {target.backend!r} could not load {target.model!r}, so nothing runs: {why}"


def _failed(
    check: Check, missing: Capability | None, error: BaseException, seconds: float
) -> Result:
    reason = str(error) if isinstance(error, Violation) else f"raised {_where(error)}"
    # A violation says all there is to know, unless an error of the backend led to it.
    explained = isinstance(error, Violation) and error.__context__ is None
    trace = "" if explained else "".join(traceback.format_exception(error))
    call = getattr(error, "call", "") or record.script(reason)
    return Result(check.id, Status.FAILED, reason, seconds, missing or "", trace, call=call)


def _where(error: BaseException) -> str:
    """Return the error, and the line that raised it, for which an author looks first."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    name, text = type(error).__name__, str(error)
    return f"{name}: {text}{place}" if text else f"{name}{place}"
