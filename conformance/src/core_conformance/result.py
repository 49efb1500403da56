"""How a check ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """What became of one check."""

    PASSED = "passed"
    FAILED = "failed"
    KNOWN = "known failure"  # failed, and the table of known failures says why
    FIXED = "fixed"  # passed, and the table of known failures says that it fails
    CRASHED = "crashed"  # the interpreter died in it
    TIMEOUT = "timeout"  # it did not end within the limit
    NOT_TESTABLE = "not testable"  # the model has nothing that it could look at
    NOT_RUN = "not run"

    @property
    def counts_against(self) -> bool:
        """Whether a backend with such a check is not conformant."""
        return self in (Status.FAILED, Status.FIXED, Status.CRASHED)

    @property
    def judged(self) -> bool:
        """Whether the check came to an end, good or bad."""
        return self not in (Status.TIMEOUT, Status.NOT_TESTABLE, Status.NOT_RUN)


@dataclass(frozen=True, slots=True)
class Result:
    """One check's status, why, and how many seconds it took.

    ``refused`` is the capability that the backend does not declare, or the option that it cannot
    honour, and whose refusal was checked instead; empty when the check itself ran. ``details`` is
    a traceback, or a process's last words.
    """

    id: str
    status: Status
    reason: str = ""
    seconds: float = 0.0
    refused: str = ""
    details: str = ""
