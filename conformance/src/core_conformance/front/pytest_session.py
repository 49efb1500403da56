"""The conformance tests of one pytest session: one run for each backend that they check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from core.errors import CoreError
from core_conformance import MARKER
from core_conformance.running import known, report, settings
from core_conformance.running.badge import BADGE, write_badge
from core_conformance.running.known import UsageError
from core_conformance.running.leftovers import Leftovers, end_with
from core_conformance.running.result import Result, Status
from core_conformance.running.run import Run
from core_conformance.running.settings import Settings

if TYPE_CHECKING:
    from core_conformance.checking.check import Check


class Session:
    """The runs, by the identity of what the tests ask for.

    Raises `pytest.UsageError` for what cannot be run.
    """

    def __init__(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        self._option = config.option
        self._left = Leftovers()
        self._names: tuple[str, ...] = ()
        try:
            self._runs = self._planned(config, items)
            report.writable(
                (self._option.core_report, report.REPORT), (self._option.core_badge, BADGE)
            )
        except (UsageError, CoreError) as error:
            raise pytest.UsageError(str(error)) from error
        items[:] = [item for item in items if self._applies(item)]

    def conduct(self, item: pytest.Item) -> None:
        """Run the check of a test; raises what pytest calls its outcome."""
        run = self._runs[id(_settings(item))]
        if not run.started:
            _start(run)
        check = _check(item)
        _tell(check, run.run(check))

    def finish(self, status: int) -> int:
        """Close the runs and write the files; returns the exit status of the session."""
        for run in self._runs.values():
            run.stop()
        self._names = tuple(thread.name for thread in self._left.threads())
        self._write()
        if self._option.core_certify and not self._certified():
            status = status or int(pytest.ExitCode.TESTS_FAILED)
        if self._names or any(run.hangs for run in self._runs.values()):
            end_with(status)
        return status

    def summarise(self, terminal: pytest.TerminalReporter) -> None:
        """Print one line for each run, and the threads still running."""
        terminal.section("core conformance")
        for run in self._runs.values():
            kind = run.verdict().kind
            ended = f" [{run.ended}]" if run.ended else ""
            colour = {"green": kind == "conformant", "red": kind == "not conformant"}
            terminal.line(run.summary() + ended, **colour)
            for line in run.left_out():
                terminal.line(f"skipped by {line}")
            if run.target.effort.deep:
                terminal.line(f"Generated with --core-seed {run.target.effort.seed}")

        if not self._runs:
            terminal.line("incomplete (nothing ran): add --pyargs core_conformance")
        if self._names:
            names = ", ".join(self._names)
            terminal.line(f"Threads left for which Python would wait at exit: {names}")

        if self._option.core_certify:
            earned = self._certified()
            terminal.line("certified" if earned else "not certified", green=earned, red=not earned)

    def _planned(self, config: pytest.Config, items: list[pytest.Item]) -> dict[int, Run]:
        marked = {id(_settings(item)): _settings(item) for item in items if _asked(item)}
        if not marked:
            return {}
        general = _of_command_line(config).over(
            settings.nearest_table(config.invocation_params.dir)
        )
        runs = {key: Run(own.over(general)) for key, own in marked.items()}
        if len(runs) > 1 and (self._option.core_report or self._option.core_badge):
            raise UsageError(
                "A report covers one backend. Select the conformance tests of only one."
            )
        return runs

    def _applies(self, item: pytest.Item) -> bool:
        return not _asked(item) or _check(item) in self._runs[id(_settings(item))].checks

    def _certified(self) -> bool:
        return bool(self._runs) and all(r.verdict().certifiable for r in self._runs.values())

    def _write(self) -> None:
        for run in self._runs.values():
            if self._option.core_report:
                certify = self._option.core_certify
                content = report.report_of(run, certify=certify, threads_left=self._names)
                report.write(content, self._option.core_report, report.REPORT)
            if self._option.core_badge:
                write_badge(run, self._option.core_badge)


def _of_command_line(config: pytest.Config) -> Settings:
    option = config.option
    return Settings(
        option.core_backend,
        option.core_model,
        settings.pairs(option.core_option),
        known.read(Path(option.core_known)) if option.core_known else None,
        None if option.core_timeout is None else settings.seconds(option.core_timeout),
        option.core_isolate,
        seed=option.core_seed,
        deep=None if option.core_deep is None else settings.seconds(option.core_deep),
    )


def _start(run: Run) -> None:
    message = ""
    try:
        run.start()
    except CoreError as error:
        message = str(error)
    if message:  # outside of the except clause, so that pytest shows this alone
        pytest.fail(message, pytrace=False)


def _tell(check: Check, result: Result) -> None:
    """Hand a result to pytest."""
    if result.status is Status.KNOWN:
        pytest.xfail(result.reason)
    if result.status is Status.NOT_RUN:
        pytest.skip(f"not run: {result.reason}")
    if result.status is Status.NOT_TESTABLE:
        pytest.skip(f"not testable with this model: {result.reason}")
    if result.status is not Status.PASSED:
        seen = f"{check.clause}\n{result.status}: {result.reason}\n{result.details}"
        call = f"\nTo reproduce:\n\n{result.call}\n" if result.call else ""
        pytest.fail(seen.rstrip() + call, pytrace=False)


def _asked(item: pytest.Item) -> bool:
    return item.get_closest_marker(MARKER) is not None


def _settings(item: pytest.Item) -> Settings:
    marker = item.get_closest_marker(MARKER)
    assert marker is not None
    settings: Settings = marker.args[0]
    return settings


def _check(item: pytest.Item) -> Check:
    assert isinstance(item, pytest.Function)
    return cast("Check", item.callspec.params["core_conformance_check"])
