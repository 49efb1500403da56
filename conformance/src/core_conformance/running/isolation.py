"""Running each check in a separate process, so that a crash or a hang affects only that check."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import msgspec

from core.choosing import unavailability
from core.errors import BackendUnavailableError
from core_conformance.checking.check import Check
from core_conformance.checking.subject import Effort
from core_conformance.running.child import LOAD, Request
from core_conformance.running.result import Result, Status
from core_conformance.running.runner import LIMIT, not_loaded
from core_conformance.running.target import CannotStart, Target

_TAIL = 2000  # characters of a process's last words


class Isolated:
    """Runs each check in a new process, which loads the model for itself.

    The backend has to be found by name there: one that was only registered in this process is
    not. A check that does not end is killed, with all processes that it started.
    """

    def __init__(self, target: Target, limit: float | None = None) -> None:
        self._target, self._asked = target, limit
        self._limit = LIMIT if limit is None else limit
        self.ended = ""  # nothing that happens in another process ends the run
        self.hangs = False

    def start(self) -> None:
        """See whether the model loads; raises `CoreError`."""
        backend = self._target.found()
        if reason := unavailability(backend):
            raise BackendUnavailableError(self._target.backend, reason)
        result = self._result_of(LOAD)
        if result.status is not Status.PASSED:
            last_words = f"\n{result.details}" if result.status is not Status.FAILED else ""
            raise CannotStart(not_loaded(self._target, result.reason + last_words))
        self._limit = result.seconds if self._asked is None else self._asked

    def run(self, check: Check) -> Result:
        """Run one check in a separate process."""
        return self._result_of(check.id)

    def go(self, effort: Effort) -> None:
        """Go so far from the next check on."""
        self._target = replace(self._target, effort=effort)

    def stop(self) -> None:
        """Do nothing: every process has ended."""

    def _result_of(self, check_id: str) -> Result:
        with tempfile.TemporaryDirectory(prefix="core-conformance-") as name:
            folder = Path(name)
            request = Request(self._target, check_id, str(folder / "result.json"))
            start = time.perf_counter()
            code = _run(msgspec.json.encode(request), folder / "output", self._limit)
            seconds = time.perf_counter() - start
            output = (folder / "output").read_text("utf-8", "backslashreplace")[-_TAIL:].strip()
            if code is None:
                reason = f"did not end within {self._limit:g} s and was killed"
                return Result(check_id, Status.TIMEOUT, reason, seconds, details=output)
            with contextlib.suppress(OSError, msgspec.DecodeError):
                return msgspec.json.decode(Path(request.result).read_bytes(), type=Result)
            return Result(check_id, Status.CRASHED, _death(code), seconds, details=output)


def _run(request: bytes, output: Path, limit: float) -> int | None:
    """Return the exit status of a process that answers ``request``.

    None when it had to be killed.
    """
    with output.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "core_conformance.running.child"],
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=sink,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(_path())},
            start_new_session=True,  # so that it can be killed with everything it started
        )

        try:
            process.communicate(request, timeout=limit)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # faulthandler says where it hangs
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2)
            return None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    return process.returncode


def _path() -> list[str]:
    """Return the folders in which this process finds modules, for the other one to find the same
    ones.
    """
    return [entry or os.getcwd() for entry in sys.path]


def _death(code: int) -> str:
    if code >= 0:
        return f"ended its process with exit status {code} before the check was over"
    try:
        return f"its process died of {signal.Signals(-code).name}"
    except ValueError:
        return f"its process died of signal {-code}"
