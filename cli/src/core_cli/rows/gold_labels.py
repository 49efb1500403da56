"""Gold labels, counted before any work: default labels, and those that do not fit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from core_cli import output
from core_cli.rows import input

if TYPE_CHECKING:
    from core_cli.flags import FitFlags, RowFlags
    from core_tasks.template import Template

_SHOWN = 12
_MOST_LABELS = 50
"""More distinct values than this, in more than half of the rows, are texts or ids."""


def counted(
    flags: RowFlags, template: Template | None = None, known: Collection[str] | None = None
) -> Counter[str]:
    """Return the rows of each gold label in a file.

    With the ``known`` labels of a multi-label task, a field may have several. Raises
    `click.UsageError`, among others if no row has the field.
    """
    assert flags.gold is not None
    counts: Counter[str] = Counter()
    with input.opened(flags, template) as source:
        for row in source.rows:
            value = row.value(flags.gold)
            if known is not None:
                counts.update(labels_in(value, known) or ())
            elif value not in (None, ""):
                counts[str(value)] += 1
    return counts


def labels_of_rows(flags: RowFlags | FitFlags) -> tuple[str, ...]:
    """Return the labels that occur in the field of ``--gold``, sorted, and print them.

    Returns none without that flag. Raises `click.UsageError` for stdin, which can be read only
    once, and for values that cannot be labels.
    """
    if flags.gold is None:
        return ()
    if flags.file in (None, "-"):
        raise click.UsageError(
            "--gold without --labels takes the labels from the input, which must be a file: pass "
            "-i FILE, or --labels."
        )
    counts = counted(row_flags(flags))
    labels = tuple(sorted(counts))
    if not labels:
        raise click.UsageError(f"No row of {flags.file} has a gold label in {flags.gold!r}.")
    if len(labels) > _MOST_LABELS and len(labels) > counts.total() / 2:
        rows = output.counted(counts.total(), "row")
        raise click.UsageError(
            f"{flags.gold!r} has {len(labels)} different values in {rows}, too many for labels. "
            "Select the field of the gold labels with --gold, or pass --labels."
        )
    output.say(f"labels in {flags.gold!r}: {_listed([repr(label) for label in labels])}")
    return labels


def row_flags(flags: RowFlags | FitFlags) -> RowFlags:
    """Return the flags that read the rows of a command that fits, as a task is asked."""
    from core_cli.flags import FitFlags, RowFlags

    if not isinstance(flags, FitFlags):
        return flags
    return RowFlags(
        file=flags.file,
        form=flags.form,
        encoding=flags.encoding,
        field=flags.field,
        limit=flags.limit,
        allow_blank=flags.allow_blank,
        gold=flags.gold,
        labels="as a task",
    )


def warn(
    flags: RowFlags, labels: Sequence[str], template: Template | None = None, *, many: bool = False
) -> None:
    """Warn of gold labels that are not among the labels, whose rows count as wrong.

    Stdin is not checked, as it can be read only once.
    """
    if flags.gold is None or flags.prompts or flags.file in (None, "-"):
        return
    counts = counted(flags, template, labels if many else None)
    if problem := differences(counts, labels):
        output.warn(f"{problem} These rows count as wrong.")


def differences(counts: Mapping[str, int], labels: Collection[str]) -> str | None:
    """Return a sentence that lists the gold labels that are not among the labels, if any."""
    known = {_folded(label): label for label in labels}
    others = [
        f"{gold!r} ({output.counted(count, 'row')}{_near(gold, known)})"
        for gold, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        if gold not in labels
    ]
    if not others:
        return None
    verb = "gold label is" if len(others) == 1 else "gold labels are"
    return f"{len(others)} {verb} not among the labels: {_listed(others)}."


def _folded(label: str) -> str:
    return " ".join(label.split()).casefold()


def _near(gold: str, known: Mapping[str, str]) -> str:
    label = known.get(_folded(gold))
    if label is None:
        return ""
    what = "spaces" if label.casefold() != gold.casefold() else "case"
    return f"; differs from {label!r} in {what}"


def _listed(parts: Iterable[str]) -> str:
    items = list(parts)
    more = f", and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more


_SEPARATORS = ";|,"


def labels_in(value: object, known: Collection[str] = ()) -> frozenset[str] | None:
    """Return the labels in a field: a list, its JSON, or a text separated by ``;``, ``|`` or ``,``.

    A text equal to one of the ``known`` labels is that label. An empty text means no label. None,
    for a missing field, returns None.
    """
    if isinstance(value, list):
        return frozenset(map(str, value))
    if value is None or not isinstance(value, str):
        return None if value is None else frozenset((str(value),))

    # A known label, a list in JSON, or labels with a separator between them.
    text = value.strip()
    if value in known or text in known:
        return frozenset((value if value in known else text,))
    if text.startswith("["):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            parsed = None
        if isinstance(parsed, list):
            return frozenset(map(str, parsed))
    separator = next((character for character in _SEPARATORS if character in text), "\n")
    return frozenset(part.strip() for part in text.split(separator) if part.strip())
