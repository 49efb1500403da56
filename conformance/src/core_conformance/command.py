"""``infer-cli conformance``: every check on one backend, with progress, a table and a verdict."""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path
from typing import Any

import click

from core_conformance import known, report, settings, showing
from core_conformance.known import UsageError
from core_conformance.leftovers import Leftovers, end_with
from core_conformance.run import Run
from core_conformance.settings import Settings
from core_conformance.stdout import kept_clean


def run_command(flags: dict[str, Any]) -> None:
    """Run the command; raises what click and ``infer-cli`` make an exit code of."""
    try:
        if flags["selftest"]:
            _selftest()
        else:
            report.writable(flags["report"], flags["badge"])
            _check(flags, Run(_settings(flags)))
    except UsageError as error:
        raise click.UsageError(str(error)) from error


def _check(flags: dict[str, Any], run: Run) -> None:
    left = Leftovers()
    if not faulthandler.is_enabled():
        faulthandler.enable(2)  # a crash says where
    # Lines come out one by one; a table takes them all, and JSON has none.
    live = not flags["as_json"] and not sys.stdout.isatty()
    with kept_clean() as stdout:
        write = stdout if live else lambda text: None
        try:
            run.start()
            _warn(run, live)
            write(showing.HEADER)
            with showing.progress(len(run.checks), lines=not live) as tell:
                for check in run.checks:
                    tell(check.id)
                    write(showing.begun(check.id))
                    write(showing.ended(run.run(check)))
        finally:
            run.stop()
    threads = tuple(thread.name for thread in left.threads())
    _write(flags, run, threads)
    if not live and not flags["as_json"]:
        showing.table(run.all_results())
    _conclude(flags, run, threads)


def _warn(run: Run, live: bool) -> None:
    """Say beforehand what to make of an end without a verdict: a dead process says nothing."""
    if not run.isolated and not sys.stderr.isatty():
        where = "stdout" if live else "stderr"
        click.echo(
            "The checks run in this process. If it dies, the last check named on "
            f"{where} did it; --isolate gives each a process of its own, and runs the rest.",
            err=True,
        )


def _settings(flags: dict[str, Any]) -> Settings:
    given = Settings(
        flags["name"],
        flags["model"],
        settings.pairs(flags["pairs"]),
        known.read(Path(flags["known"])) if flags["known"] else None,
        None if flags["timeout"] is None else settings.seconds(flags["timeout"]),
        flags["isolate"],
    )
    usual = Settings(model=os.environ.get("INFER_MODEL") or None)
    return given.over(settings.nearest_table(Path.cwd())).over(usual)


def _write(flags: dict[str, Any], run: Run, threads: tuple[str, ...]) -> None:
    if flags["report"] or flags["as_json"]:
        made = report.report_of(run, certify=flags["certify"], threads_left=threads)
        if flags["report"]:
            report.write(made, flags["report"])
        if flags["as_json"]:
            click.echo(report.encoded(made))
    if flags["badge"]:
        report.write(report.badge_of(run), flags["badge"])


def _conclude(flags: dict[str, Any], run: Run, threads: tuple[str, ...]) -> None:
    showing.complaints(run)
    if threads:
        names = ", ".join(threads)
        click.echo(f"Warning: threads left for which Python would wait: {names}", err=True)
    verdict = run.verdict()
    certified = " (certified)" if flags["certify"] and verdict.certifiable else ""
    click.echo(f"{run.summary()}{certified}.", err=True)
    good = verdict.certifiable if flags["certify"] else verdict.kind == "conformant"
    if threads or run.hangs:
        end_with(0 if good else 1)
    if not good:
        raise click.exceptions.Exit(1)


def _selftest() -> None:
    from core_conformance import selftest

    with kept_clean(), showing.progress(None) as tell:
        summary = selftest.run(tell)
    click.echo(str(summary))
    if summary.problems:
        raise click.exceptions.Exit(1)
