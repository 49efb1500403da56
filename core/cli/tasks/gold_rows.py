"""Rows of an input with their right labels, or without: what is fitted, learned and tuned on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from core.cli import output
from core.cli.rows import asking
from core.cli.tasks.many_gold import labels_in

if TYPE_CHECKING:
    from core.cli.reading.row import Row

Gold = str | frozenset[str]


@dataclass(frozen=True, slots=True)
class Texts:
    """Rows that can be asked, and their right labels where they have some.

    A row's is one label, or those that hold where several may.
    """

    texts: list[str]
    gold: list[Any] | None


def read(
    flags: Mapping[str, Any], labels: Sequence[str] | None = None, many: bool = False
) -> Texts:
    """The rows of ``-i``, with the labels in the field ``--gold`` where that is given.

    ``labels`` are those that a right one must be among, ``many`` says that several may hold. What
    cannot be asked, or has no right label, is left out, and that is said. Raises
    `click.UsageError` for a label that is none of these, and where no row is left.
    """
    if flags["file"] is None:
        raise click.UsageError("No rows. Give them with -i FILE.")

    unread = ("prompts", "id_field", "shard", "system", "truncate")
    reading = {**flags, **dict.fromkeys(unread), "labels": "as a task"}
    with asking.opened(reading, None) as found:
        rows = list(found.rows)

    # What can be asked, and of that what has a right label.
    kept, gold = [row for row in rows if row.error is None], None
    if flags["gold"] is not None:
        right = _many(labels or ()) if many else _one
        named = [(row, right(row.fields.get(flags["gold"]))) for row in kept]
        kept = [row for row, label in named if label is not None]
        gold = [label for _, label in named if label is not None]
        _check(kept, gold, labels)

    if len(kept) < len(rows):
        _warn_of_left_out(rows, kept)
    if not kept:
        raise click.UsageError(f"No row of {flags['file']} can be learned from.")
    return Texts([row.text for row in kept], gold)


def _one(value: object) -> Gold | None:
    return None if value in (None, "") else str(value)


def _many(labels: Collection[str]) -> Callable[[object], Gold | None]:
    return lambda value: labels_in(value, labels)


def _check(rows: Sequence[Row], gold: Sequence[Gold], labels: Sequence[str] | None) -> None:
    for row, right in zip(rows, gold, strict=True) if labels is not None else ():
        own = (right,) if isinstance(right, str) else sorted(right)
        for label in own:
            if label not in (labels or ()):
                known = ", ".join(map(repr, labels or ()))
                raise click.UsageError(
                    f"{row.place} has the label {label!r}, and the task {known}."
                )


def _warn_of_left_out(rows: Sequence[Row], kept: Sequence[Row]) -> None:
    count = output.counted(len(rows) - len(kept), "row")
    first = next((str(row.error) for row in rows if row.error is not None), None)
    output.warn(f"{count} left out: {first or 'they have no right label'}")
