"""From the flags to the rows that are asked about, and to the prompts that are made of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import click

from core.cli import output, settings
from core.cli.rows.template import TEXT, Template

if TYPE_CHECKING:
    from core.cli.loading import Loaded
    from core.cli.reading.fields import Fields
    from core.cli.reading.row import Row
    from core.cli.rows.prompts import PromptMaker
    from core.options import GenerateConfig


_LOOKED_AT = 32  # rows at the beginning, of which the first sound one has to have its text
_QUESTIONS = ("task", "head", "labels", "labels_file", "field", "id_field", "system", "truncate")


@dataclass(frozen=True, slots=True)
class Input:
    """The rows that are asked about, how much of them is read, and whether more can be now."""

    rows: Iterator[Row]
    share: Callable[[], float | None]
    name: str
    form: str = "text"
    more_waits: Callable[[], bool] = lambda: True


@contextmanager
def opened(
    flags: Mapping[str, Any], template: Template | None, fields: Fields | None = None
) -> Iterator[Input]:
    """The rows, from arguments, a file or stdin; ``fields`` are where they have what.

    Raises `click.UsageError` for flags that make no sense together, and where the first sound row
    has no text in the field that it is looked for in: so it will be with all others.
    """
    from core.cli.reading import request_rows, source

    if flags["prompts"] and flags["prompts"] != ("-",):
        rows = _not_blank(source.rows_of_arguments(flags["prompts"]), flags, template)
        yield Input(islice(rows, flags["limit"]), lambda: None, "arguments")
        return
    name = flags["file"] or "-"
    # With a question for all rows, a request's own words are a row as any other.
    asks = fields is not None or template is not None
    own = not asks and not any(flags.get(name) for name in _QUESTIONS)
    items = fields is not None  # whose reader refuses blank questions
    fields = fields or fields_of(flags, template)
    with source.opened(name, flags["form"], fields, own) as found:
        others = [field for field in (template.fields if template else ()) if field != TEXT]
        if others and found.form == "text":
            raise click.UsageError(
                f"--template has {{{others[0]}}}, and lines of text have no fields but {{text}}. "
                f"Braces that stand for themselves are doubled: {{{{{others[0]}}}}}."
            )
        rows = _part(_with_text(found.rows()), flags["shard"])
        if not items and found.form != request_rows.FORM:
            rows = _not_blank(rows, flags, template)

        def share() -> float | None:
            whole = None if flags["limit"] else found.size
            return found.position() / whole if whole else None

        shown = "stdin" if name == "-" else name
        yield Input(islice(rows, flags["limit"]), share, shown, found.form, found.more_waits)


def fields_of(flags: Mapping[str, Any], template: Template | None) -> Fields:
    """Where a record has what the flags ask for."""
    from core.cli.reading.fields import Fields

    names = template.fields if template is not None else (TEXT,)
    others = tuple(name for name in names if name != TEXT)
    return Fields(flags["field"], flags["id_field"], others, TEXT in names)


def _part(rows: Iterator[Row], shard: tuple[int, int] | None) -> Iterator[Row]:
    if shard is None:
        return rows
    part, parts = shard
    return islice(rows, part - 1, None, parts)


def _not_blank(
    rows: Iterator[Row], flags: Mapping[str, Any], template: Template | None
) -> Iterator[Row]:
    """Yield the rows, with an error where all that a prompt takes from them is blank."""
    if flags.get("allow_blank"):
        yield from rows
        return
    from core.support import blank_error

    names = template.fields if template is not None else (TEXT,)
    for row in rows:
        values = [row.text if name == TEXT else row.fields.get(name) for name in names]
        blank = not any(str(value).strip() for value in values if value is not None)
        answered = row.messages is not None and row.messages[-1].role != "user"
        if blank and row.error is None and not answered:
            error = blank_error("", "--allow-blank", f"The text of {row.place}")
            yield replace(row, error=error)
        else:
            yield row


def _with_text(rows: Iterator[Row]) -> Iterator[Row]:
    from core.cli.reading.row import MissingFieldError

    # Broken rows tell nothing of the others.
    read: list[Row] = []
    for row in islice(rows, _LOOKED_AT):
        read.append(row)
        if isinstance(row.error, MissingFieldError):
            raise click.UsageError(str(row.error))
        if row.error is None:
            break
    return chain(read, rows)


def prompt_maker(
    flags: Mapping[str, Any],
    loaded: Loaded,
    template: Template | None,
    config: GenerateConfig,
    room: int = 1,
    *,
    labels: bool = False,
) -> PromptMaker:
    """Return what makes prompts of rows; ``labels`` are read after them.

    Raises `UnsupportedOperationError` without a tokeniser, `core.OptionError`.
    """
    from core.cli.rows.prompts import PromptMaker
    from core.cli.rows.truncation import Truncation

    system, side = flags["system"], flags["truncate"]
    limit = loaded.model.info.context_length - room
    truncation = None if side is None else Truncation(side, limit)
    maker = PromptMaker(
        *(loaded.model, loaded.backend.name, template, settings.uses_template(flags), system),
        truncation=truncation,
        config=config,
        opening=flags["opening"] or "",
        labels=labels,
        new_turn=bool(flags["new_turn"]),
    )
    maker.check()
    return maker


def warn_of_file(prompts: tuple[str, ...]) -> None:
    """Say on stderr that a prompt which is a file's name was hardly meant as one."""
    if len(prompts) == 1 and os.path.isfile(prompts[0]):
        name = prompts[0]
        output.warn(f"{name} is read as a prompt. To read the file of that name: -i {name}")
