"""``infer-cli conformance``: every check on one backend, with progress, a table and a verdict."""

from __future__ import annotations

import faulthandler
import json
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from core.system.terminal import stream, visible, visible_json, visible_lines
from core_conformance.checking.check import Check, all_checks
from core_conformance.running import known, page, report, settings
from core_conformance.running.known import UsageError
from core_conformance.running.leftovers import Leftovers, end_with
from core_conformance.running.result import Result, Status
from core_conformance.running.run import Run
from core_conformance.running.settings import Settings

_COLUMNS = ("CHECK", "STATUS", "SECONDS", "COMPARED", "NOTE")
_STYLES = {
    Status.PASSED: "green",
    Status.KNOWN: "yellow",
    Status.NOT_TESTABLE: "yellow",
    Status.NOT_RUN: "dim",
}
HEADER = "\t".join(_COLUMNS) + "\n"
"""The first of the tab-separated lines."""


def begun(check_id: str) -> str:
    """Return the beginning of the line of a check that now runs."""
    return f"{check_id}\t"


def ended(result: Result) -> str:
    """Return the rest of the line of a check that has ended."""
    return "\t".join(_cells(result)[1:]) + "\n"


@contextmanager
def progress(total: int | None, lines: bool = False) -> Iterator[Callable[[str], None]]:
    """Show a progress bar if stderr is a terminal; yield the function that takes the next step.

    ``lines``: otherwise, print each step as a line on stderr.
    """
    if not sys.stderr.isatty():
        yield lambda text: click.echo(text, err=True) if lines else None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}"),
    )
    console = Console(stderr=True, color_system=None if _plain() else "auto")
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total, now="")
        done = -1

        def tell(text: str) -> None:
            nonlocal done
            done += 1
            bar.update(task, completed=done, now=text)

        yield tell


def table(results: Sequence[Result]) -> None:
    """Print on a terminal every check with its status, its seconds, its count, and a note."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(*_COLUMNS, box=None, pad_edge=False, header_style="bold")
    for result in results:
        check, status, *numbers, note = _cells(result)
        style = _STYLES.get(result.status, "bold red")
        right = [Text(number, justify="right") for number in numbers]
        grid.add_row(check, Text(status, style), *right, Text(note))
    Console(file=stream(), color_system=None if _plain() else "auto").print(grid)


def complaints(run: Run) -> None:
    """Print on stderr each violated clause, and what was seen instead."""
    silent = (Status.PASSED, Status.NOT_RUN, Status.KNOWN, Status.NOT_TESTABLE)
    _untestable(run)
    for line in run.left_out():
        click.echo(f"\nSKIPPED by {visible(line)}", err=True)
    for result in run.all_results():
        if result.status in silent:
            continue
        click.echo(f"\n{str(result.status).upper()} {result.id}", err=True)
        click.echo(f"  {all_checks()[result.id].clause}", err=True)
        click.echo(f"  Seen: {visible_lines(result.reason)}", err=True)
        click.echo(f"  Rerun: {_again(run, result)}", err=True)
        if result.call:
            click.echo(f"  To reproduce:\n\n{visible_lines(result.call)}\n", err=True)
        if result.status in (Status.CRASHED, Status.TIMEOUT) and result.details:
            click.echo(f"  Last output:\n{visible_lines(result.details)}", err=True)


def _again(run: Run, result: Result) -> str:
    """Return the command that runs this check alone."""
    target = run.target
    pairs = [
        part
        for name, value in target.options.items()
        for part in ("-O", f"{name}={json.dumps(value, default=str)}")
    ]
    words = [target.backend, "-m", target.model, *pairs, "-k", result.id]
    return visible("infer-cli conformance " + shlex.join(words))


def _untestable(run: Run) -> None:
    """Print on stderr what the model lacks, once each, with the checks that need it."""
    lacking: dict[str, list[str]] = {}
    for result in run.all_results():
        if result.status is Status.NOT_TESTABLE:
            lacking.setdefault(result.reason, []).append(result.id)
    for reason, ids in lacking.items():
        click.echo(f"\nNOT TESTABLE with this model: {', '.join(ids)}", err=True)
        click.echo(f"  {visible_lines(reason[:1].upper() + reason[1:])}.", err=True)


def _cells(result: Result) -> tuple[str, str, str, str, str]:
    numbers = f"{result.seconds:.2f}", str(result.compared)
    return result.id, str(result.status), *numbers, _note(result)


def _note(result: Result) -> str:
    note = visible(result.reason.splitlines()[0]) if result.reason else ""
    if result.refused and result.status is Status.PASSED:
        note = f"not declared, and refused: {result.refused}"
    return note.replace("\t", " ")


def _plain() -> bool:
    return bool(os.environ.get("NO_COLOR"))


def run_command(flags: dict[str, Any]) -> None:
    """Run the command; raises what click and ``infer-cli`` make an exit code of."""
    try:
        if flags["selftest"]:
            _selftest()
        else:
            report.writable(
                (flags["report"], report.REPORT),
                (flags["badge"], report.BADGE),
                (flags["html"], page.PAGE),
            )
            _whole_or_parts(flags)
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

    try:
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
    finally:
        run.stop()

    # The run has ended: what it left, its files, its results, and the exit code.
    threads = tuple(thread.name for thread in left.threads())
    _write(flags, run, threads)
    if not live and not flags["as_json"]:
        table([result for result in run.all_results() if not flags["quiet"] or _said(result)])
    _conclude(flags, run, threads)


def _whole_or_parts(flags: dict[str, Any]) -> None:
    if flags["certify"] and flags["only"]:
        raise UsageError("--certify requires all checks. Remove -k or --certify.")


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
        report.write(report.badge_of(run), flags["badge"], report.BADGE)


def _conclude(flags: dict[str, Any], run: Run, threads: tuple[str, ...]) -> None:
    complaints(run)
    if threads:
        names = ", ".join(threads)
        click.echo(
            f"Warning: threads still running, which Python would wait for: {names}", err=True
        )
    verdict = run.verdict()
    certified = " (certified)" if flags["certify"] and verdict.certifiable else ""
    click.echo(f"{run.summary()}{certified}.", err=True)
    good = verdict.certifiable if flags["certify"] else run.good()
    if threads or run.hangs:
        end_with(0 if good else 1)
    if not good:
        raise click.exceptions.Exit(1)


def _selftest() -> None:
    from core_conformance.proof import selftest

    with progress(None) as tell:
        summary = selftest.run(tell)
    click.echo(str(summary))
    if summary.problems:
        raise click.exceptions.Exit(1)
