"""The process of one isolated check: it is started with -m, and its request is on stdin.

The answer goes to a file, so that a backend may print what it likes; and the process ends at
once, whatever threads the backend has left.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from dataclasses import dataclass

import msgspec

from core_conformance.checking.check import all_checks
from core_conformance.checking.material import use
from core_conformance.running.result import Result, Status
from core_conformance.running.runner import limit_for, run_check
from core_conformance.running.target import Target

LOAD = "load"
"""The id of no check: does the model load? The seconds of its result are a check's limit."""


@dataclass(frozen=True, slots=True)
class Request:
    """Run the check ``check`` on ``target`` and write its `Result` as JSON to ``result``."""

    target: Target
    check: str
    result: str


def main() -> None:
    """Answer the request on stdin, and end."""
    faulthandler.enable()  # a crash says where
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    use(request.target.material)
    answer = msgspec.json.encode(_load(request) if request.check == LOAD else _check(request))
    with open(request.result + ".part", "wb") as file:
        file.write(answer)
    os.replace(request.result + ".part", request.result)
    os._exit(0)


def _check(request: Request) -> Result:
    return run_check(all_checks()[request.check], request.target.subject())


def _load(request: Request) -> Result:
    from core.errors import described

    try:
        subject = request.target.subject()
        _ = subject.model
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is the answer
        return Result(LOAD, Status.FAILED, described(error))
    return Result(LOAD, Status.PASSED, seconds=limit_for(subject, None))


if __name__ == "__main__":
    main()
