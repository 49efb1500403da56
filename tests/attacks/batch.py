"""Runs an attack's cases in a child process, and in another one where a case ended it."""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).parent
PATIENCE = 90.0  # seconds without a word of one case, which takes far less than one
MOST_FINDINGS = 25  # then something is broken altogether


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that must not happen. ``case`` is None where it is no single case's."""

    attack: str
    case: int | None
    kind: str
    message: str

    def __str__(self) -> str:
        alone = "" if self.case is None else f" {self.case}"
        return (
            f"{self.kind} in {self.attack}{alone}\n"
            f"    cd tests && python -m attacks.child {shlex.quote(self.attack)}{alone or ' 0'}\n"
            + "".join(f"    {line}\n" for line in self.message.splitlines()[-40:])
        )


@dataclass(slots=True)
class Report:
    """What came of the cases: how often each outcome, and every finding."""

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def __str__(self) -> str:
        shown = "\n".join(map(str, self.findings[:MOST_FINDINGS]))
        return f"{len(self.findings)} findings; outcomes {dict(self.outcomes)}\n{shown}"


def run(attack: str, count: int, first: int = 0, patience: float = PATIENCE) -> Report:
    """Run the cases from ``first`` on; a case that takes the child with it is named, and passed.

    ``patience``: seconds without a word (see `progress`) after which a case is held to hang.
    """
    report, next_case, end = Report(), first, first + count
    while next_case < end and len(report.findings) < MOST_FINDINGS:
        with Child(attack, next_case, end - next_case, report, patience) as child:
            next_case = child.watch() + 1
    return report


class Child:
    """One process, from its first case to its end or to its death."""

    def __init__(
        self, attack: str, first: int, count: int, report: Report, patience: float
    ) -> None:
        self._attack, self._report, self._patience = attack, report, patience
        self._case: int | None = None
        self._last = first + count - 1
        reading, writing = os.pipe()
        self._answers = os.fdopen(reading, "rb", buffering=0)
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
        numbers = map(str, (first, count, writing, patience / 5))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "attacks.child", attack, *numbers],
            pass_fds=[writing],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            cwd=HERE.parent,
        )
        os.close(writing)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._answers.close()
        self._errors.close()

    def watch(self) -> int:
        """Read its answers to the end. Returns the case that it has come to."""
        pending = b""
        while select.select([self._answers], [], [], self._limit())[0]:
            data = os.read(self._answers.fileno(), 1 << 16)
            if not data:
                return self._ended()
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                self._heard(json.loads(line))
        self._process.send_signal(signal.SIGABRT)  # its faulthandler shows all stacks
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._find("hang", f"no progress for {self._limit():g} s\n{self._said()}")
        return self._passed()

    def _limit(self) -> float:
        """Seconds to wait for a word: until the first case, those that a busy machine takes."""
        return max(self._patience, PATIENCE) if self._case is None else self._patience

    def _heard(self, said: dict[str, Any]) -> None:
        if "findings" in said:
            self._report.outcomes[said["outcome"]] += 1
            for kind, message in said["findings"]:
                self._find(kind, message)
        elif "case" in said:
            self._case = said["case"]
        elif "done" in said:
            self._case = None
            if said["growth"]:
                self._find("leak", f"its memory grew by {said['growth'] >> 20} MiB in all")

    def _ended(self) -> int:
        """It closed its answers: because it had done, or because it died."""
        try:
            status = self._process.wait(self._patience)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)
            self._process.wait()
            self._find("hang", f"the process does not end\n{self._said()}")
            return self._passed()
        if status:
            fate = f"signal {-status}" if status < 0 else f"status {status}"
            self._find("death", f"the process ended with {fate}\n{self._said()}")
        elif "Exception ignored" in (said := self._said()):
            self._find("foreign", f"noise at its end\n{said}")
        return self._passed()

    def _passed(self) -> int:
        """The case behind which another process goes on: all, where none had begun."""
        return self._last if self._case is None else self._case

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-6000:].decode(errors="replace")

    def _find(self, kind: str, message: str) -> None:
        self._report.findings.append(Finding(self._attack, self._case, kind, message))
