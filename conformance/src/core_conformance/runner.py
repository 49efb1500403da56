"""Running checks: one on a subject, and many in this process, each within a time limit."""

from __future__ import annotations

import contextlib
import time
import traceback
from typing import Protocol

from core.capability import Capability
from core.choosing import described
from core.errors import CoreError, UnsupportedOptionError
from core_conformance.model import Check, NotTestable, Violation
from core_conformance.preconditions import ready
from core_conformance.refusals import may_refuse, refuses
from core_conformance.result import Result, Status
from core_conformance.subject import Subject
from core_conformance.target import CannotStart, Target
from core_conformance.worker import StillRunning, Worker

LIMIT = 120.0
"""Seconds that a check may take unless something else is asked for."""


class Runner(Protocol):
    """A way to run checks on one target."""

    def start(self) -> None:
        """Load the model. Raises `CoreError` when no check can run."""
        ...

    def run(self, check: Check) -> Result:
        """Run one check. What the backend does wrong is in the result."""
        ...

    def stop(self) -> None:
        """Close what was opened."""
        ...

    @property
    def ended(self) -> str:
        """Why no further check can run; empty while they can."""
        ...


class InProcess:
    """Runs checks in a thread of this process, with one model for all. A hang ends the run."""

    def __init__(self, target: Target, limit: float = LIMIT) -> None:
        self._target, self._limit = target, limit
        self._subject: Subject | None = None
        self._worker = Worker()
        self.ended = ""

    def start(self) -> None:
        """Load the model; raises `CoreError`."""
        self._subject = subject = self._target.subject()
        try:
            self._worker.run(lambda: subject.model, self._limit)
        except StillRunning:
            self.ended = f"loading did not end within {self._limit:g} s"
            why = f"{self.ended}. Raise the time limit, or take a smaller model."
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
            self._close(subject)  # what it left behind shall not fail the next check as well
        return result

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
    missing, start = None, time.perf_counter()
    try:
        missing = check.missing(subject.backend.capabilities)
        if missing is None:
            ready(check, subject)
            check.run(subject)
        else:
            refuses(subject, missing)
    except KeyboardInterrupt:
        raise
    except NotTestable as error:
        seconds = time.perf_counter() - start
        return Result(check.id, Status.NOT_TESTABLE, str(error), seconds)
    except BaseException as error:  # noqa: BLE001 - a backend may also call sys.exit
        seconds = time.perf_counter() - start
        if isinstance(error, UnsupportedOptionError) and may_refuse(subject, error):
            return Result(check.id, Status.PASSED, "", seconds, error.option)
        return _failed(check, missing, error, seconds)
    return Result(check.id, Status.PASSED, "", time.perf_counter() - start, missing or "")


def timed_out(check: Check, limit: float) -> Result:
    """The result of a check that did not end."""
    reason = f"did not end within {limit:g} s: it hangs, or the limit is too low for this machine"
    return Result(check.id, Status.TIMEOUT, reason, limit)


def not_loaded(target: Target, why: str) -> str:
    """The message for a model that the backend under test does not load."""
    return f"Backend {target.backend!r} could not load {target.model!r}, so nothing runs: {why}"


def _failed(
    check: Check, missing: Capability | None, error: BaseException, seconds: float
) -> Result:
    reason = str(error) if isinstance(error, Violation) else f"raised {_where(error)}"
    # A violation says all there is to know, unless an error of the backend led to it.
    told = isinstance(error, Violation) and error.__context__ is None
    trace = "" if told else "".join(traceback.format_exception(error))
    return Result(check.id, Status.FAILED, reason, seconds, missing or "", trace)


def _where(error: BaseException) -> str:
    """The error, and the line that raised it: what an author looks for first."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    name, text = type(error).__name__, str(error)
    return f"{name}: {text}{place}" if text else f"{name}{place}"
