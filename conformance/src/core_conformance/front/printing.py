"""Results on a terminal and in lines: the progress, the table, and the reasons of failures."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple

import click

from core.system.terminal import stream, visible, visible_lines
from core_conformance.checking.check import all_checks
from core_conformance.running.comparing import Difference, Kind
from core_conformance.running.result import Result, Status
from core_conformance.running.run import Run

_COLUMNS = ("CHECK", "STATUS", "SECONDS", "COMPARED", "NOTE")
_STYLES = {
    Status.PASSED: "green",
    Status.KNOWN: "yellow",
    Status.NOT_TESTABLE: "yellow",
    Status.NOT_RUN: "dim",
}
_OF_DIFFERENCES = ("DIFFERENCE", "NAME", "A", "B", "NOTE")
_OF_KINDS = {Kind.FAILED: "bold red", Kind.MENDED: "green"}
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
    styles = (_STYLES.get(result.status, "bold red") for result in results)
    grid(_COLUMNS, map(_cells, results), styles, numbers=("SECONDS", "COMPARED"))


def grid(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    styles: Iterable[str],
    numbers: Sequence[str] = (),
) -> None:
    """Print rows as a table on a terminal, the second cell of each in its style."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left")
    for (first, second, *others), style in zip(rows, styles, strict=True):
        table.add_row(Text(first), Text(second, style), *map(Text, others))
    Console(file=stream(), color_system=None if _plain() else "auto").print(table)


def differences(changes: Sequence[Difference]) -> None:
    """Print the differences between two reports: as a table on a terminal, else as lines."""
    rows = [[visible(str(cell)).replace("\t", " ") for cell in astuple(one)] for one in changes]
    if stream().isatty():
        styles = (_OF_KINDS.get(one.kind, "yellow") for one in changes)
        grid(_OF_DIFFERENCES, ([name, kind, *others] for kind, name, *others in rows), styles)
        return
    for row in [_OF_DIFFERENCES, *rows]:
        click.echo("\t".join(row))


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
