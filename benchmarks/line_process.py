"""A contestant's process: it reads one JSON line for each request, and writes one."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ROOT = Path(__file__).parents[1]
_SETTLE_SECONDS = 0.3  # a library's threads spin for a while after their work


class UnavailableError(Exception):
    """Why a contestant cannot take part."""


def python_path() -> dict[str, str]:
    """Return the environment in which a process can import these benchmarks and their imports."""
    path = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    return {"PYTHONPATH": os.pathsep.join(path)}


class LineProcess:
    """The parent's end of a process that runs ``module`` with a contestant's ``spec``.

    Raises `UnavailableError` if it cannot run.
    """

    def __init__(
        self, python: str, module: str, spec: DataclassInstance, environment: Mapping[str, str]
    ) -> None:
        try:
            self._process = subprocess.Popen(
                [python, "-m", module, json.dumps(asdict(spec))],
                env=os.environ | {**environment, **python_path()},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
            )
        except OSError as error:
            raise UnavailableError(f"{python} cannot be started: {error}") from error

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request, once the threads of others have settled, and return the answer."""
        assert self._process.stdin is not None
        time.sleep(_SETTLE_SECONDS)
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: the missing answer shows it
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Return the next answer; the first one comes without a request, after the load."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            raise UnavailableError(f"its process ended with status {status}; see its output above")
        answer: dict[str, Any] = json.loads(line)
        if "unavailable" in answer:
            self.close()
            raise UnavailableError(answer["unavailable"])
        return answer

    def close(self) -> None:
        """End the process; it may be in the middle of something."""
        self._process.kill()
        self._process.communicate()
