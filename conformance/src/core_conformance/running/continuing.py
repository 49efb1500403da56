"""Running checks in this process, and after one that hangs in separate processes."""

from __future__ import annotations

from dataclasses import replace

from core.errors import CoreError
from core_conformance.checking.check import Check
from core_conformance.checking.subject import Effort
from core_conformance.running.isolation import Isolated
from core_conformance.running.result import Result
from core_conformance.running.runner import InProcess
from core_conformance.running.target import Target


class Continuing:
    """Runs checks with one model in this process, which is fast, for as long as they end.

    A check that hangs still runs here, and holds the model: so every later check gets a new
    process. A backend that other processes do not find ends the run instead.
    """

    def __init__(self, target: Target, limit: float | None = None) -> None:
        self._target, self._limit = target, limit
        self._here = InProcess(target, limit)
        self._elsewhere: Isolated | None = None
        self._not_elsewhere = ""

    @property
    def ended(self) -> str:
        """The reason why no further check can run; empty while they can."""
        if not self._here.ended or self._elsewhere is not None:
            return ""
        return f"{self._here.ended}{self._not_elsewhere}"

    @property
    def hangs(self) -> bool:
        """True when something still runs in this process."""
        return bool(self._here.ended)

    def go(self, effort: Effort) -> None:
        """Go so far from the next check on."""
        self._target = replace(self._target, effort=effort)
        self._here.go(effort)
        if self._elsewhere is not None:
            self._elsewhere.go(effort)

    def start(self) -> None:
        """Load the model; raises `CoreError`."""
        self._here.start()

    def run(self, check: Check) -> Result:
        """Run one check, here or elsewhere."""
        if self._elsewhere is not None:
            return self._elsewhere.run(check)
        result = self._here.run(check)
        if self._here.ended:
            self._go_on()
        return result

    def stop(self) -> None:
        """Close the model, unless a check still works with it."""
        self._here.stop()

    def _go_on(self) -> None:
        elsewhere = Isolated(self._target, self._limit)
        try:
            elsewhere.start()
        except CoreError as error:
            self._not_elsewhere = f", and no other process can continue: {error}"
        else:
            self._elsewhere = elsewhere
