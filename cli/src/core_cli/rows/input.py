"""Turns flags into the rows to process, and rows into prompts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING

import click

from core_cli import output
from core_tasks.template import TEXT, Template

if TYPE_CHECKING:
    from core.options import GenerateConfig
    from core_cli.flags import RowFlags
    from core_cli.loading import Loaded
    from core_cli.reading.row import Fields, Row
    from core_cli.rows.prompts import PromptMaker


_LOOKED_AT = 32  # rows to search for the first valid one, which must have a text


@dataclass(slots=True)
class Input:
    """The rows to process, the share read so far, and whether more are available."""

    rows: Iterator[Row]
    share: Callable[[], float | None]
    name: str
    form: str = "text"
    more_waits: Callable[[], bool] = lambda: True


def is_empty(source: Input) -> bool:
    """Return whether a source has no rows; the first one is read, and stays in it."""
    first = list(islice(source.rows, 1))
    source.rows = chain(first, source.rows)
    return not first


@contextmanager
def opened(
    flags: RowFlags, template: Template | None, fields: Fields | None = None
) -> Iterator[Input]:
    """Yield the rows from arguments, a file or stdin; ``fields`` name their fields.

    Raises `click.UsageError` for flags that cannot be combined, and if the first valid row lacks
    a field that is needed, because all others probably do too.
    """
    from core_cli.reading import json_rows, source

    if flags.prompts and flags.prompts != ("-",):
        rows = _not_blank(source.rows_of_arguments(flags.prompts), flags, template)
        yield Input(islice(rows, flags.limit), lambda: None, "arguments")
        return
    name = flags.file or "-"
    # With a question for all rows, a batch request is read as an ordinary row.
    asks = fields is not None or template is not None
    own = not asks and not _asks(flags)
    items = fields is not None  # their reader rejects blank questions
    fields = fields or fields_of(flags, template)
    with source.opened(name, flags.form, fields, own, flags.encoding) as reader:
        others = [field for field in (template.fields if template else ()) if field != TEXT]
        if others and reader.form == "text":
            raise click.UsageError(
                f"--template uses {{{others[0]}}}, but lines of text only have {{text}}. For "
                f"literal braces, double them: {{{{{others[0]}}}}}."
            )
        rows = _part(_with_fields(reader.rows(), fields), flags.shard)
        if not items and reader.form != json_rows.FORM:
            rows = _not_blank(rows, flags, template)

        def share() -> float | None:
            whole = None if flags.limit else reader.size
            return reader.position() / whole if whole else None

        shown = "stdin" if name == "-" else name
        yield Input(islice(rows, flags.limit), share, shown, reader.form, reader.more_waits)


def _asks(flags: RowFlags) -> bool:
    """Return whether the flags set a question or the way rows are read."""
    question = flags.task or flags.head or flags.labels or flags.labels_file or flags.gold
    return bool(question or flags.field or flags.id_field or flags.system or flags.truncate)


def fields_of(flags: RowFlags, template: Template | None) -> Fields:
    """Return the names of the fields that the flags select."""
    from core_cli.reading.row import Fields

    names = template.fields if template is not None else (TEXT,)
    others = tuple(name for name in names if name != TEXT)
    return Fields(flags.field, flags.id_field, others, TEXT in names, gold=flags.gold)


def _part(rows: Iterator[Row], shard: tuple[int, int] | None) -> Iterator[Row]:
    if shard is None:
        return rows
    part, parts = shard
    return islice(rows, part - 1, None, parts)


def _not_blank(rows: Iterator[Row], flags: RowFlags, template: Template | None) -> Iterator[Row]:
    """Yield the rows, with an error for those whose used fields are all blank."""
    if flags.allow_blank:
        yield from rows
        return
    from core.kit.support import blank_error

    names = template.fields if template is not None else (TEXT,)
    for row in rows:
        values = [row.text if name == TEXT else row.value(name) for name in names]
        blank = not any(str(value).strip() for value in values if value is not None)
        answered = row.messages is not None and row.messages[-1].role != "user"
        if blank and row.error is None and not answered:
            error = blank_error("", "--allow-blank", f"The text of {row.place}")
            yield replace(row, error=error)
        else:
            yield row


def _with_fields(rows: Iterator[Row], fields: Fields) -> Iterator[Row]:
    """Return the rows, after a look at the first of them for the fields that all should have.

    Raises `click.UsageError` if the first valid row lacks one, or none of these a gold label.
    """
    from core_cli.reading.row import FieldError, has_field

    # Broken rows do not show which fields the others have.
    first: list[Row] = []
    for row in islice(rows, _LOOKED_AT):
        first.append(row)
        if isinstance(row.error, FieldError):
            raise click.UsageError(str(row.error))
        if row.error is None and (fields.gold is None or has_field(row.fields, fields.gold)):
            break
    fields.check_gold([row for row in first if row.error is None])
    return chain(first, rows)


def prompt_maker(
    flags: RowFlags,
    loaded: Loaded,
    template: Template | None,
    config: GenerateConfig,
    room: int = 1,
    *,
    labels: bool = False,
    question: Callable[[str], str] | None = None,
) -> PromptMaker:
    """Return the maker of prompts from rows; ``labels`` if labels follow them.

    ``question`` is the prompt of a task or head around a text.

    Raises `UnsupportedOperationError` without a tokeniser, and `OptionError`.
    """
    from core_cli.rows.prompts import PromptMaker, Truncation

    system, side = flags.system, flags.truncate
    limit = loaded.model.info.context_length - room
    truncation = None if side is None else Truncation(side, limit)
    maker = PromptMaker(
        *(loaded.model, loaded.backend.name, template, flags.uses_template(), system),
        truncation=truncation,
        config=config,
        opening=flags.opening or "",
        labels=labels,
        new_turn=bool(flags.new_turn),
        question=question,
    )
    maker.check()
    return maker


def warn_of_file(prompts: tuple[str, ...]) -> None:
    """Warn that a prompt is the name of a file, which is probably unintended."""
    if len(prompts) == 1 and os.path.isfile(prompts[0]):
        name = prompts[0]
        output.warn(f"{name} is used as a prompt. To read the file of that name, pass -i {name}")


class RowCount:
    """Counts of finished rows, and the text of a progress line."""

    def __init__(self, share: Callable[[], float | None]) -> None:
        self.done = self.failed = 0
        self.counts: Mapping[str, int] = {}
        self._share = share
        self._start, self._before = time.perf_counter(), 0

    def add(self, count: int, failed: int, counts: Mapping[str, int]) -> None:
        """Add finished rows; set the total of failed rows and the rows by label."""
        self.done += count
        self.failed, self.counts = failed, counts

    def skip(self, count: int) -> None:
        """Set the rows that an earlier run finished, excluded from the rate."""
        self.done, self._before = count, count

    def text(self) -> str:
        """Return ``412 rows, 20 %, 18.3 rows/s, 1:27 left; 2 failed; sports 210, ...``."""
        seconds = time.perf_counter() - self._start
        count, share = self.done - self._before, self._share()
        if not self.done:
            return f"running the first rows, {seconds:.0f} s"
        parts = [output.counted(self.done, "row")]
        if share is not None:
            parts.append(f"{100 * share:.0f} %")
        if count:
            parts.append(f"{count / seconds:.1f} rows/s")
        if count and share:
            whole = self.done / share
            parts.append(f"{output.clock((whole - self.done) * seconds / count)} left")

        facts = [", ".join(parts)]
        if self.failed:
            facts.append(f"{self.failed} failed")
        if self.counts:
            first = sorted(self.counts.items(), key=lambda pair: -pair[1])[:4]
            facts.append(", ".join(f"{label} {count}" for label, count in first))
        return "; ".join(facts)
