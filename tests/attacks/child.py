"""Runs the cases of one attack in this process, and says of each what came of it.

One case alone, with its traceback, from the folder above this one::

    python -m attacks.child ATTACK CASE

An attack is ``MODULE`` or ``MODULE.VARIANT``. Its module has ``prepare(place, variant)``, which
makes what the cases need in an empty folder, uses it once, and returns the function that runs a
case by its number: it returns a word for what happened, and raises for what must not happen. A
module may have bounds of its own, ``PEAK`` and ``GROWTH``.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from io import FileIO
from pathlib import Path
from typing import Any

from . import progress, resources

Case = Callable[[int], str]
Said = dict[str, Any]

ENVIRONMENT = {
    "GGML_NO_BACKTRACE": "1",  # it starts a debugger
    "MLX_DISABLE_COMPILE": "1",  # its CPU JIT starts a C++ compiler
    "OMP_WAIT_POLICY": "passive",  # who waits by spinning takes minutes where others run
    "OPENBLAS_NUM_THREADS": "1",
}
HANG_SECONDS = 90  # of one case by hand; a batch's parent looks at its progress instead
MIB = 2**20
ADDRESSES = 6 * 2**30
PEAK = 512 * MIB  # beyond what was held before the case
GROWTH = 96 * MIB  # of all cases of a process together


class Ignored:
    """Exceptions that reach nobody: of finalizers, callbacks and threads."""

    def __init__(self) -> None:
        self.found: list[str] = []
        sys.unraisablehook = self._add
        threading.excepthook = self._add

    def _add(self, what: Any) -> None:
        shown = traceback.format_exception(what.exc_type, what.exc_value, what.exc_traceback)
        self.found.append("nobody could catch this:\n" + "".join(shown))

    def take(self) -> str:
        """What was ignored since the last time."""
        taken, self.found = self.found, []
        return "\n".join(taken)


class Runner:
    """Runs cases and judges what each leaves behind."""

    def __init__(self, case: Case, say: Callable[[Said], None], patience: float, peak: int) -> None:
        self._case, self._say, self._patience, self._peak = case, say, patience, peak
        self._ignored = Ignored()
        self._held = resources.held()

    def run(self, number: int) -> None:
        """One case, announced before it begins."""
        self._say({"case": number})
        before = resources.resident()
        resources.start_peak()
        outcome, findings = "", list[tuple[str, str]]()
        try:
            outcome = self._case(number)
        except BaseException:  # noqa: BLE001 - all that escapes is a finding
            findings.append(("foreign", traceback.format_exc()))
        peak = resources.peak() - before
        if ignored := self._ignored.take():
            findings.append(("foreign", ignored))
        if peak > self._peak:
            findings.append(("memory", f"{peak // MIB} MiB at its peak"))
        now = resources.settled(self._held, self._patience)
        if more := now.beyond(self._held):
            findings.append(("leak", f"{', '.join(more)}. {resources.names()}"))
            self._patience = min(self._patience, 0.5)  # it fails anyway: let it fail soon
        self._held = now
        self._say({"case": number, "outcome": outcome, "findings": findings})


def run(attack: str, cases: range, say: Callable[[Said], None], patience: float = 10.0) -> None:
    """Run these cases in order.

    ``patience``: seconds until what is on its way out is held to be a leak.
    """
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    name, _, variant = attack.partition(".")
    module = import_module(f"attacks.{name}")
    with tempfile.TemporaryDirectory() as place:
        case = module.prepare(Path(place), variant)
        resources.limit_addresses(ADDRESSES)
        runner = Runner(case, say, patience, getattr(module, "PEAK", PEAK))
        before = resources.resident()
        say({"ready": True})
        for number in cases:
            runner.run(number)
        growth = resources.resident() - before
        say({"done": True, "growth": growth if growth > getattr(module, "GROWTH", GROWTH) else 0})


def main() -> None:
    """As a batch's child with a descriptor to answer on, or one case by hand."""
    os.environ.update(ENVIRONMENT)  # before any library is loaded that reads it
    attack, first = sys.argv[1], int(sys.argv[2])
    if len(sys.argv) == 3:
        findings: list[Said] = []
        progress.listeners.append(_wind_up)
        progress.step()
        run(attack, range(first, first + 1), lambda said: _show(said, findings))
        sys.exit(bool(findings))
    count, descriptor, patience = int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
    with os.fdopen(descriptor, "wb", buffering=0) as answers:
        progress.listeners.append(lambda: _write(answers, {"step": True}))
        cases = range(first, first + count)
        run(attack, cases, lambda said: _write(answers, said), patience)


def _wind_up() -> None:
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)


def _write(answers: FileIO, said: Said) -> None:
    answers.write(json.dumps(said).encode() + b"\n")


def _show(said: Said, findings: list[Said]) -> None:
    sys.stdout.write(f"{said.get('outcome') or said}\n")
    for kind, message in said.get("findings", ()):
        findings.append(said)
        sys.stdout.write(f"{kind}: {message}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
