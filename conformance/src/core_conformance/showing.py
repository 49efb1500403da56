"""Results for people: a table on a terminal, tab-separated lines elsewhere, progress on stderr."""

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
_STYLES = {Status.PASSED: "green", Status.KNOWN: "yellow", Status.NOT_RUN: "dim"}


@contextmanager
def progress(total: int | None) -> Iterator[Callable[[str], None]]:
    """A bar on stderr where that is a terminal; the function it gives takes what comes next."""
    if not sys.stderr.isatty():
        yield lambda text: None
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
    """Every check with its status, seconds, and what there is to say about it."""
    rows = [(r.id, str(r.status), f"{r.seconds:.2f}", _note(r)) for r in results]
    if not sys.stdout.isatty():
        click.echo("".join("\t".join(row) + "\n" for row in (_COLUMNS, *rows)), nl=False)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(*_COLUMNS, box=None, pad_edge=False, header_style="bold")
    for result, (check, status, seconds, note) in zip(results, rows, strict=True):
        style = _STYLES.get(result.status, "bold red")
        grid.add_row(check, Text(status, style), Text(seconds, justify="right"), Text(note))
    Console(color_system=None if _plain() else "auto").print(grid)


def complaints(run: Run) -> None:
    """What is wrong, on stderr: each violated clause, and what was seen instead."""
    for result in run.all_results():
        if result.status in (Status.PASSED, Status.NOT_RUN, Status.KNOWN):
            continue
        click.echo(f"\n{str(result.status).upper()} {result.id}", err=True)
        click.echo(f"  {all_checks()[result.id].clause}", err=True)
        click.echo(f"  Seen: {result.reason}", err=True)
        if result.status in (Status.CRASHED, Status.TIMEOUT) and result.details:
            click.echo(f"  Its last words:\n{result.details}", err=True)


def _note(result: Result) -> str:
    note = result.reason.splitlines()[0] if result.reason else ""
    if result.refused and result.status is Status.PASSED:
        note = f"not declared, and refused: {result.refused}"
    return note.replace("\t", " ")


def _plain() -> bool:
    return bool(os.environ.get("NO_COLOR"))
