"""Results for people: a table on a terminal, tab-separated lines elsewhere, progress on stderr.

A line is begun before its check runs and written out at once. If the process dies in a check, what
was found so far is there, and the last line names the check.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

from core_conformance.registry import all_checks
from core_conformance.result import Result, Status
from core_conformance.run import Run

_COLUMNS = ("CHECK", "STATUS", "SECONDS", "NOTE")
_STYLES = {
    Status.PASSED: "green",
    Status.KNOWN: "yellow",
    Status.NOT_TESTABLE: "yellow",
    Status.NOT_RUN: "dim",
}
HEADER = "\t".join(_COLUMNS) + "\n"
"""The first of the tab-separated lines."""


def begun(check_id: str) -> str:
    """The beginning of a check's line."""
    return f"{check_id}\t"


def ended(result: Result) -> str:
    """The rest of it."""
    return "\t".join(_cells(result)[1:]) + "\n"


@contextmanager
def progress(total: int | None, lines: bool = False) -> Iterator[Callable[[str], None]]:
    """A bar on stderr where that is a terminal; the function it gives takes what comes next.

    ``lines``: elsewhere, what comes next is a line on stderr.
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
    """Every check with its status, seconds, and what there is to say about it: on a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(*_COLUMNS, box=None, pad_edge=False, header_style="bold")
    for result in results:
        check, status, seconds, note = _cells(result)
        style = _STYLES.get(result.status, "bold red")
        grid.add_row(check, Text(status, style), Text(seconds, justify="right"), Text(note))
    Console(color_system=None if _plain() else "auto").print(grid)


def complaints(run: Run) -> None:
    """What is wrong, on stderr: each violated clause, and what was seen instead."""
    silent = (Status.PASSED, Status.NOT_RUN, Status.KNOWN, Status.NOT_TESTABLE)
    _untestable(run)
    for result in run.all_results():
        if result.status in silent:
            continue
        click.echo(f"\n{str(result.status).upper()} {result.id}", err=True)
        click.echo(f"  {all_checks()[result.id].clause}", err=True)
        click.echo(f"  Seen: {result.reason}", err=True)
        if result.status in (Status.CRASHED, Status.TIMEOUT) and result.details:
            click.echo(f"  Its last words:\n{result.details}", err=True)


def _untestable(run: Run) -> None:
    """What the model lacks, once, with the checks that could not look at anything."""
    lacking: dict[str, list[str]] = {}
    for result in run.all_results():
        if result.status is Status.NOT_TESTABLE:
            lacking.setdefault(result.reason, []).append(result.id)
    for reason, ids in lacking.items():
        click.echo(f"\nNOT TESTABLE with this model: {', '.join(ids)}", err=True)
        click.echo(f"  {reason[:1].upper()}{reason[1:]}.", err=True)


def _cells(result: Result) -> tuple[str, str, str, str]:
    return result.id, str(result.status), f"{result.seconds:.2f}", _note(result)


def _note(result: Result) -> str:
    note = result.reason.splitlines()[0] if result.reason else ""
    if result.refused and result.status is Status.PASSED:
        note = f"not declared, and refused: {result.refused}"
    return note.replace("\t", " ")


def _plain() -> bool:
    return bool(os.environ.get("NO_COLOR"))
