"""Rows with or without gold labels, to fit, train or tune on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from core_cli import output
from core_cli.flags import FitFlags
from core_cli.rows import gold_labels, input
from core_cli.rows.gold_labels import labels_in
from core_tasks.calibration import Threshold
from core_tasks.calibration.thresholds import fewest_rows
from core_tasks.folds import text_key

if TYPE_CHECKING:
    from core_cli.reading.row import Row


Gold = str | frozenset[str]


@dataclass(frozen=True, slots=True)
class Texts:
    """Usable rows, and their gold labels, if given.

    A row has one label or, in a multi-label task, a set.
    """

    texts: list[str]
    gold: list[Any] | None


def read(flags: FitFlags, labels: Sequence[str] | None = None, many: bool = False) -> Texts:
    """Return the rows of ``-i``, with the labels in the field of ``--gold``, if given.

    ``labels`` are the allowed gold labels, ``many`` allows several per row. Unusable rows and those
    without a gold label are skipped, with a warning. Raises `click.UsageError` for labels that are
    not allowed, and if no row is left.
    """
    if flags.file is None:
        raise click.UsageError("No rows. Pass them with -i FILE.")

    with input.opened(gold_labels.row_flags(flags), None) as source:
        rows = list(source.rows)

    # Usable rows, and among them those with a gold label.
    used, gold = [row for row in rows if row.error is None], None
    if flags.gold is not None:
        right = _many(labels or ()) if many else _one
        named = [(row, right(row.value(flags.gold))) for row in used]
        used = [row for row, label in named if label is not None]
        gold = [label for _, label in named if label is not None]
        _check(gold, labels)

    if len(used) < len(rows):
        _warn_of_left_out(rows, used)
    if not used:
        raise click.UsageError(f"{flags.file} has no usable rows.")
    return Texts([row.text for row in used], gold)


def _one(value: object) -> Gold | None:
    return None if value in (None, "") else str(value)


def _many(labels: Collection[str]) -> Callable[[object], Gold | None]:
    return lambda value: labels_in(value, labels)


def _check(gold: Sequence[Gold], labels: Sequence[str] | None) -> None:
    """Raise `click.UsageError` for gold labels that the task does not have, with all of them."""
    if labels is None:
        return
    counts = Counter(label for row in gold for label in ((row,) if isinstance(row, str) else row))
    if problem := gold_labels.differences(counts, labels):
        known = ", ".join(map(repr, labels))
        raise click.UsageError(f"{problem} The labels of the task are {known}.")


def _warn_of_left_out(rows: Sequence[Row], used: Sequence[Row]) -> None:
    count = output.counted(len(rows) - len(used), "row")
    first = next((str(row.error) for row in rows if row.error is not None), None)
    output.warn(f"{count} skipped: {first or 'no gold label'}")


def warn_of_repeats(texts: Sequence[str]) -> None:
    """Warn of rows that repeat a text: the guarantee does not hold for duplicates."""
    if repeats := len(texts) - len({text_key(text) for text in texts}):
        output.warn(
            f"{output.counted(repeats, 'row')} repeat the text of another row. --error-rate "
            "assumes independent rows, and duplicates fail together: remove them."
        )


def threshold_value(threshold: Threshold | None, error_rate: float) -> float:
    """Return the value of a threshold, and print its guarantee.

    Raises `click.ClickException` for lack of a threshold.
    """
    if threshold is None:
        raise click.ClickException(
            f"No threshold guarantees an error rate of {error_rate:g}: that takes at least "
            f"{math.ceil(fewest_rows(error_rate))} rows without an error, or more rows with "
            "few errors. Pass more rows, or a larger --error-rate."
        )
    output.say(
        f"threshold {threshold.value:.4f}: {threshold.kept} of "
        f"{output.counted(threshold.rows, 'row')} accepted, {threshold.errors} of them wrong. For "
        f"rows drawn like these, at most {100 * error_rate:g} % of the accepted labels are wrong, "
        f"with {100 * threshold.confidence:g} % confidence."
    )
    return threshold.value
