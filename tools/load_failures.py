"""A pytest plugin for machines that are busy: ``-p tools.load_failures --load-failures FILE``.

A test whose verdict can depend on the machine's load carries the marker ``load``. Where all that
failed carries it, their ids are written into FILE, a line each, for a second run by themselves
(``make again``). Where another test failed as well, FILE stays empty: nothing is run twice.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--load-failures", type=Path, help="the file for the ids of failed tests")


def pytest_configure(config: pytest.Config) -> None:
    file: Path | None = config.option.load_failures
    if file is not None and not hasattr(config, "workerinput"):  # xdist's workers report to this
        config.pluginmanager.register(_Recorder(file), "load failures")


class _Recorder:
    """The ids of failed tests, those with the marker and those without."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._marked: list[str] = []
        self._others: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            ids = self._marked if "load" in report.keywords else self._others
            ids.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._others.append(report.nodeid)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the file; nothing where the run ended by another cause than failed tests."""
        again = self._marked if exitstatus == pytest.ExitCode.TESTS_FAILED else []
        ids = [] if self._others else dict.fromkeys(again)
        self._file.write_text("".join(f"{test}\n" for test in ids), encoding="utf-8")
