"""A pytest plugin that records each test's outcome: ``-p tools.record_tests --record FILE``.

The file has one line for each test, sorted, so that two runs can be compared line by line.
"""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, help="the file for the tests' outcomes")


def pytest_configure(config: pytest.Config) -> None:
    file: Path | None = config.option.record
    if file is not None and not hasattr(
        config, "workerinput"
    ):  # xdist's workers report to the controller
        config.pluginmanager.register(_Recorder(file), "record")


class _Recorder:
    """Outcome and seconds of each test, whose phases come one by one."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._found: dict[str, tuple[str, float]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome, seconds = self._found.get(report.nodeid, ("passed", 0.0))
        outcome = outcome if report.passed else report.outcome
        self._found[report.nodeid] = outcome, seconds + report.duration

    def pytest_sessionfinish(self) -> None:
        lines = [
            f"{outcome} {seconds:.0f} s {test}" for test, (outcome, seconds) in self._found.items()
        ]
        ordered = sorted(lines, key=lambda line: line.split(" s ", 1)[1])
        self._file.write_text("\n".join([_header(), *ordered, ""]), encoding="utf-8")


def _header() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    commit = done.stdout.strip() or "unknown"
    machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"{datetime.now(UTC):%Y-%m-%d}, commit {commit}, {machine}"
