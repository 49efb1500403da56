"""Items read from the rows of a file, and few-shot examples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import click

from core.errors import EvaluationError
from core_cli import output
from core_cli.flags import RowFlags
from core_cli.reading import source
from core_cli.reading.row import Fields, InputError, MissingFieldError, Row
from core_tasks.evaluation.items import QUESTIONS, Item, Names
from core_tasks.evaluation.prompts import told_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from core_tasks.evaluation.marking import Metric

_LOOKED_AT = 32  # rows to search for the first valid item, which decides the kind


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalFlags(RowFlags):
    """Flags of ``eval``."""

    answer_field: str | None = None
    choices_field: str | None = None
    few_shot: str | None = None
    shots: int | None = None
    answer_prefix: str | None = None
    letters: bool = False
    metric: Metric | None = None
    extract: str | None = None
    ignore_case: bool = False
    ignore_punctuation: bool = False
    gen_batch_size: tuple[int, ...] = ()
    num_samples: int = 1
    pass_at: tuple[int, ...] = ()
    fail_under: float | None = None
    saved: str | None = None
    compare: tuple[str, str] | None = None


def names_of(flags: EvalFlags) -> Names:
    """Return the names of a record's fields, as the flags give them."""
    return Names(flags.field, flags.answer_field, flags.choices_field)


def fields_of(flags: EvalFlags) -> Fields:
    """Return the fields for the row readers; a row's text is its question."""
    return Fields(flags.field, flags.id_field, usual=QUESTIONS)


def item_of(row: Row, names: Names) -> Item:
    """Return the item in a row. Raises `InputError` for a row that is not an item."""
    if row.error is not None:
        raise row.error
    try:
        return names.item(row.fields)
    except EvaluationError as error:
        raise InputError(f"{row.place}: {error}") from None


def first_of(flags: EvalFlags) -> Item | None:
    """Return the first valid item of a file; None for stdin, which can be read only once.

    Raises `click.UsageError` for a file without items.
    """
    if flags.file in (None, "-"):
        return None
    errors: list[Exception] = []
    for row in _rows(flags.file, flags, _LOOKED_AT):
        try:
            return item_of(row, names_of(flags))
        except (InputError, MissingFieldError) as error:
            errors.append(error)
    if not errors:
        raise click.UsageError(f"{flags.file} contains no items.")
    raise click.UsageError(
        f"{flags.file} has no items in its first {output.counted(len(errors), 'row')}: "
        f"{errors[0]} Select the fields with --text-field, --gold and --choices-field."
    )


def examples_of(flags: EvalFlags) -> tuple[Item, ...]:
    """Return the first ``--shots`` examples of ``--few-shot``.

    Raises `click.UsageError` for too few.
    """
    name, wanted = flags.few_shot, flags.shots
    if name is None:
        if wanted:
            raise click.UsageError("--shots requires --few-shot FILE.")
        return ()
    try:
        examples = [item_of(row, names_of(flags)) for row in _rows(name, flags, wanted)]
    except InputError as error:
        raise click.UsageError(f"--few-shot {name}: {error}") from None
    if not examples or (wanted and len(examples) < wanted):
        raise click.UsageError(
            f"{name} has only {output.counted(len(examples), 'example')}; --shots is {wanted}."
            if examples
            else f"{name} contains no examples."
        )
    return tuple(examples)


def warn_of_examples(flags: EvalFlags, examples: Sequence[Item]) -> None:
    """Warn before the work of items that are among the examples."""
    if not examples or flags.file in (None, "-"):
        return
    count, known = 0, {told_by(example) for example in examples}
    for row in _rows(flags.file, flags, flags.limit):
        try:
            count += told_by(item_of(row, names_of(flags))) in known
        except InputError:
            continue
    if count:
        output.warn(
            f"{output.counted(count, 'item')} of {flags.file} "
            f"{'is' if count == 1 else 'are'} also in the examples of {flags.few_shot}, which "
            "reveal the answer."
        )


def _rows(name: str, flags: EvalFlags, limit: int | None) -> Iterator[Row]:
    own = flags.form if name == flags.file else "auto"
    fields = Fields(flags.field, usual=QUESTIONS)
    with source.opened(name, own, fields, encoding=flags.encoding) as reader:
        if reader.form == "text":
            raise click.UsageError(
                f"{name} is plain text. Items need a question and an answer: pass JSON lines, a "
                "JSON array, CSV, TSV or Parquet."
            )
        yield from islice(reader.rows(), limit)
