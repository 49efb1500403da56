"""``infer-cli conformance``: every check on one backend, with progress, a table and a verdict."""

from __future__ import annotations

import faulthandler
import math
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import click

from core.system.terminal import stream, visible_json
from core_conformance.checking.check import Check, all_checks
from core_conformance.checking.watching import quick_collections
from core_conformance.front import printing
from core_conformance.front.printing import HEADER, begun, ended, progress
from core_conformance.running import comparing, known, page, report, settings
from core_conformance.running.badge import BADGE, write_badge
from core_conformance.running.chosen import chosen
from core_conformance.running.known import UsageError
from core_conformance.running.leftovers import Leftovers, end_with
from core_conformance.running.result import Result, Status
from core_conformance.running.run import Run
from core_conformance.running.settings import Settings

_SPELLED = {
    "name": "BACKEND",
    "everything": "--all",
    "pairs": "--option",
    "only": "--check",
    "as_json": "--json",
}
"""The arguments that are not called like their flag."""


def run_command(flags: dict[str, Any]) -> None:
    """Run the command; raises what click and ``infer-cli`` make an exit code of."""
    try:
        if flags["selftest"]:
            _selftest(flags)
        elif flags["compare"]:
            _compare(flags)
        elif flags["everything"]:
            raise UsageError("--all is for --selftest. Remove it, or add --selftest.")
        else:
            report.writable(
                (flags["report"], report.REPORT),
                (flags["badge"], BADGE),
                (flags["html"], page.PAGE),
            )
            _check(flags, Run(_settings(flags)))
    except UsageError as error:
        raise click.UsageError(str(error)) from error


def _check(flags: dict[str, Any], run: Run) -> None:
    left = Leftovers()
    if not faulthandler.is_enabled():
        faulthandler.enable(2)  # a crash says where
    # Lines come out one by one; a table takes them all, and JSON has none.
    live = not flags["as_json"] and not stream().isatty()

    def write(text: str) -> None:
        if live:
            click.echo(text, nl=False)

    with quick_collections(), ExitStack() as stack:
        stack.callback(run.stop)
        run.start()
        if not flags["quiet"]:
            _warn(run, live)
            write(HEADER)
        with progress(len(run.checks), lines=not live) as tell:
            for check in run.checks:
                tell(check.id)
                _lines(write, run, check, flags["quiet"])
        if flags["deep"] == math.inf:
            _without_end(run, write)

    # The run has ended: what it left, its files, its results, and the exit code.
    threads = tuple(thread.name for thread in left.threads())
    _write(flags, run, threads)
    if not live and not flags["as_json"]:
        results = run.all_results()
        printing.table([*filter(_said, results)] if flags["quiet"] else results)
    _conclude(flags, run, threads)


def _lines(write: Callable[[str], None], run: Run, check: Check, quiet: bool) -> None:
    """Run a check and write its line: its name first, in case that the process dies in it."""
    if quiet:
        result = run.run(check)
        write(begun(check.id) + ended(result) if _said(result) else "")
        return
    write(begun(check.id))
    write(ended(run.run(check)))


def _said(result: Result) -> bool:
    """Return whether --quiet shows a result: one that did not pass."""
    return result.status is not Status.PASSED


def _without_end(run: Run, write: Callable[[str], None]) -> None:
    """Keep generating inputs until the user interrupts, or all checks have failed."""
    click.echo("Generating more inputs until you press Ctrl-C.", err=True)
    with suppress(KeyboardInterrupt):
        for result in run.further():
            if _said(result):
                write(begun(result.id) + ended(result))


def _warn(run: Run, live: bool) -> None:
    """Print the seed, and how to interpret a process that dies without a verdict."""
    if run.target.effort.deep:
        seed = run.target.effort.seed
        click.echo(f"Seed {seed}: --seed {seed} gives the same inputs again.", err=True)
    if not run.isolated and not sys.stderr.isatty():
        where = "stdout" if live else "stderr"
        click.echo(
            "The checks run in this process. If it dies, the last check named on "
            f"{where} is the cause; --isolate runs each check in its own process.",
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
        flags["only"],
        seed=flags["seed"],
        deep=None if flags["deep"] is None else settings.deep(flags["deep"]),
    )

    try:
        here = Path.cwd()
    except FileNotFoundError as error:
        raise UsageError("The working directory no longer exists. Change to another.") from error

    # What is given goes before what the project says, and that before the environment.
    usual = Settings(model=os.environ.get("INFER_MODEL") or None)
    return given.over(settings.nearest_table(here)).over(usual)


def _write(flags: dict[str, Any], run: Run, threads: tuple[str, ...]) -> None:
    if flags["report"] or flags["html"] or flags["as_json"]:
        content = report.report_of(run, certify=flags["certify"], threads_left=threads)
        if flags["report"]:
            report.write(content, flags["report"], report.REPORT)
        if flags["html"]:
            page.write(content, flags["html"])
        if flags["as_json"]:
            click.echo(visible_json(report.encoded(content)))
    if flags["badge"]:
        write_badge(run, flags["badge"])


def _conclude(flags: dict[str, Any], run: Run, threads: tuple[str, ...]) -> None:
    printing.complaints(run)
    if threads:
        names = ", ".join(threads)
        click.echo(
            f"Warning: threads still running, which Python would wait for: {names}", err=True
        )
    verdict = run.verdict()
    certified = " (certified)" if flags["certify"] and verdict.certifiable else ""
    click.echo(f"{run.summary()}{certified}.", err=True)
    good = run.flawless() if flags["certify"] else run.good()
    if threads or run.hangs:
        end_with(0 if good else 1)
    if not good:
        raise click.exceptions.Exit(1)


def _selftest(flags: dict[str, Any]) -> None:
    """Test the suite itself: a sample of its checks, or all of it."""
    from core_conformance.proof import sample, selftest

    _takes(flags, "--selftest tests the suite itself", "selftest", "everything", "only", "seed")
    checks = chosen([*all_checks().values()], flags["only"])
    seed = settings.random_seed() if flags["seed"] is None else flags["seed"]
    everything = flags["everything"]
    whole = everything and not flags["only"]
    total = selftest.count() if whole else len(checks)
    with progress(total, lines=everything) as tell:
        result: sample.Sample | selftest.Summary = (
            selftest.run(tell)
            if whole
            else sample.run(checks, seed, progress=tell, all_of_them=everything)
        )
    click.echo(str(result))
    if result.problems:
        raise click.exceptions.Exit(1)


def _takes(flags: dict[str, Any], what: str, *names: str) -> None:
    """Raise `UsageError` for an argument that a run without a backend does not read."""
    given = [name for name, value in flags.items() if value not in (None, False, ())]
    if others := [_SPELLED.get(name, f"--{name}") for name in given if name not in names]:
        raise UsageError(f"{what}. Remove {', '.join(others)}.")


def _compare(flags: dict[str, Any]) -> None:
    """Print the differences between two reports; exit with 1 if B fails what A passed."""
    _takes(flags, "--compare reads two reports", "compare", "as_json")
    comparison = comparing.compare(*map(comparing.read, flags["compare"]))
    if flags["as_json"]:
        click.echo(visible_json(report.encoded(comparison)))
    else:
        printing.differences(comparison.differences)
    click.echo(f"{comparison.summary()}.", err=True)
    if comparison.worse:
        raise click.exceptions.Exit(1)
