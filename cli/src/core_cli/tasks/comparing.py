"""Compares several models on the same rows with gold labels: which one to take."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import click

from core.api import discover
from core.errors import CoreError
from core_cli import output
from core_cli.progress import working
from core_cli.tasks.candidates import Candidates, TuneFlags
from core_cli.tasks.gold_rows import Texts
from core_cli.tasks.trying import Tried, try_model

_SHOWN = ("MODEL", "ACCURACY", "MEAN", "WORST", "ECE", "HEAD", "ROWS/S", "SIZE")  # 80 columns
_HEAD = (*_SHOWN, "INTERVAL", "BACKEND", "CANDIDATE", "METHOD", "PROBLEM")


@dataclass(frozen=True, slots=True)
class Row:
    """A model's line: what was tried, or why it could not be. Sizes are in bytes.

    ``mean`` and ``worst`` are accuracies over the candidates, each at its best level.
    """

    model: str
    tried: Tried | None = None
    mean: float = 0.0
    worst: float = 0.0
    size: int | None = None
    problem: str = ""

    @property
    def merit(self) -> tuple[float, float]:
        """The expected accuracy, then the likelihood; larger is better, negative without any."""
        if self.tried is None or self.tried.tuning.expected is None:
            return -1.0, 0.0
        return self.tried.tuning.expected.accuracy, -self.tried.tuning.expected.nll


def best_of(
    models: Sequence[str],
    flags: TuneFlags,
    candidates: Candidates,
    rows: Texts,
    levels: list[Any] | None,
) -> tuple[TuneFlags, Tried]:
    """Try one model after another, show the table, and return the flags and result of the best.

    Only one is loaded at a time. A model that fails is a row with its reason; raises the error of
    the first if all do.
    """
    lines, errors = list[Row](), list[CoreError | click.UsageError]()
    with working(flags, models[0]) as work:
        for model in models:
            own = replace(flags, model=model)
            work.load(model)
            try:
                tried = try_model(own, candidates, rows, levels, work, compared=True)
                lines.append(_row(model, tried))
            except (CoreError, click.UsageError) as error:
                errors.append(error)
                lines.append(Row(model, problem=str(error)))
    lines.sort(key=lambda line: line.merit, reverse=True)
    best = lines[0].tried
    if best is None:
        raise errors[0]
    _show(lines, flags.as_json)
    for line in lines:
        if line.problem:
            output.warn(f"{line.model}: {line.problem}")
    taken = best.tuning.trials[0]
    output.say(
        f"Best of {output.counted(len(lines), 'model')}: {lines[0].model}, with "
        f"{taken.candidate!r}, {taken.method}."
    )
    return replace(flags, model=lines[0].model), best


def _row(model: str, tried: Tried) -> Row:
    accuracies = [trial.accuracy or 0.0 for trial in tried.tuning.by_candidate]
    size = None
    with contextlib.suppress(CoreError):  # such as a server's address
        size = sum(entry.size_bytes for entry in discover(tried.location, 0)) or None
    return Row(model, tried, fmean(accuracies), min(accuracies), size)


def _show(lines: Sequence[Row], as_json: bool) -> None:
    if as_json:
        output.write_bytes(output.json_lines([{"models": [*map(_record, lines)]}]))
    elif output.is_terminal():
        rows = [_cells(line)[: len(_SHOWN)] for line in lines]
        used = [n for n in range(len(_SHOWN)) if any(row[n] for row in rows)]
        output.draw([_SHOWN[n] for n in used], [[row[n] for n in used] for row in rows], cut=True)
    else:
        output.write_lines([_HEAD, *map(_cells, lines)])


def _cells(line: Row) -> list[str]:
    if line.tried is None:
        return [line.model, "failed", *[""] * (len(_HEAD) - 3), line.problem]
    best, expected = line.tried.tuning.trials[0], line.tried.tuning.expected
    assert expected is not None  # there are gold labels
    low, high = expected.interval
    head = line.tried.head
    return [
        line.model,
        f"{expected.accuracy:.3f}",
        f"{line.mean:.3f}",
        f"{line.worst:.3f}",
        f"{expected.calibration_error:.3f}",
        "" if head is None else f"{head['accuracy']:.3f}",
        f"{best.rows_per_second:.1f}",
        "" if line.size is None else output.human_size(line.size),
        f"{low:.3f}-{high:.3f}",
        line.tried.backend,
        best.candidate.replace("\n", "\\n"),
        best.method,
        "",
    ]


def _record(line: Row) -> dict[str, object]:
    if line.tried is None:
        return {"model": line.model, "problem": line.problem}
    return {
        "model": line.model,
        "problem": None,
        "backend": line.tried.backend,
        "size_bytes": line.size,
        "mean_accuracy": line.mean,
        "worst_accuracy": line.worst,
        "rows_per_second": line.tried.tuning.trials[0].rows_per_second,
        **line.tried.tuning.to_dict(),
        "head": line.tried.head,
    }
