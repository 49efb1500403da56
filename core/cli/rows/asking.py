"""What the commands that ask a model share: rows in, prompts of them, blocks of answers out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from typing import IO, TYPE_CHECKING, Any

import click

from core.cli import exits, output, settings
from core.cli.rows import checks

if TYPE_CHECKING:
    from core.cli.loading import Loaded
    from core.cli.rows.bulk import Question
    from core.cli.rows.inputs import Row
    from core.cli.rows.prompts import PromptMaker
    from core.cli.rows.results import Table
    from core.options import GenerateConfig

FILE = click.Path(exists=True, dir_okay=False, readable=True)
_FILE_OR_STDIN = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True)


def prompt_options(command: Any) -> Any:
    """Decorate a command with the flags that say what is asked: the model, rows, templates."""
    flags = [
        click.argument("prompts", nargs=-1, metavar="[PROMPT]..."),
        settings.model_option,
        click.option("-i", "--input", "file", type=_FILE_OR_STDIN, help="Prompts; - is stdin."),
        click.option(
            "--format", "form", type=click.Choice(["auto", "text", "jsonl"]), default="auto"
        ),
        click.option("--field", help="The JSONL field that holds the text."),
        click.option("--limit", type=click.IntRange(1), metavar="N", help="The first N rows only."),
        click.option("--template", help='The prompt around each text: "...{text}...".'),
        click.option("--chat", is_flag=True, help="Use the model's chat template."),
        click.option("-s", "--system", help="A system message; implies --chat."),
    ]
    for flag in reversed(flags):
        command = flag(command)
    return command


@contextmanager
def rows_of(flags: Mapping[str, Any]) -> Iterator[Iterator[Row]]:
    """The rows that are asked about, from arguments, a file or stdin.

    Raises `click.UsageError` for flags that make no sense together, and where the first row has no
    text in the field that it is looked for in: so it will be with all others.
    """
    from core.cli.rows.inputs import rows_of_arguments, rows_of_stream

    checks.refuse(flags)
    if flags["prompts"] and flags["prompts"] != ("-",):
        yield islice(rows_of_arguments(flags["prompts"]), flags["limit"])
        return
    name = flags["file"] or "-"
    with click.open_file(name, "rb") as stream:
        binary: IO[bytes] = stream
        rows = rows_of_stream(binary, name, flags["form"], flags["field"])
        yield islice(_with_text(rows), flags["limit"])


def _with_text(rows: Iterator[Row]) -> Iterator[Row]:
    from core.cli.rows.inputs import MissingFieldError

    first = next(rows, None)
    if first is None:
        return rows
    if isinstance(first.error, MissingFieldError):
        raise click.UsageError(str(first.error))
    return chain([first], rows)


def prompt_maker(flags: Mapping[str, Any], loaded: Loaded) -> PromptMaker:
    """How prompts are made of rows. Raises `UnsupportedOperationError` without a chat template."""
    from core.cli.rows.prompts import PromptMaker

    system = flags["system"]
    chat = flags["chat"] or system is not None
    maker = PromptMaker(loaded.model, loaded.backend.name, flags["template"], chat, system)
    maker.check()
    return maker


def write_answers(
    flags: Mapping[str, Any],
    loaded: Loaded,
    rows: Iterator[Row],
    config: GenerateConfig,
    question: Question,
    table: Table,
) -> None:
    """Ask about all rows and write what comes. Raises `CommandFailed` when some rows failed."""
    from core.cli.progress import Progress
    from core.cli.rows import results
    from core.cli.rows.bulk import answered

    as_json = flags["as_json"]
    failures = results.Failures(explained=not as_json)
    maker = prompt_maker(flags, loaded)
    with Progress("row", flags["verbose"]) as progress:
        for outcomes in answered(question, maker, rows, config):
            progress.clear()
            results.write(outcomes, None if as_json else table)
            failures.add(outcomes)
            progress.add(len(outcomes))
        progress.clear()
        failures.end()
    if not progress.done:
        output.warn(f"no prompts in {_source(flags)}")
    if failures.count:
        message = f"{failures.count} of {output.counted(progress.done, 'row')} failed."
        raise exits.CommandFailed(message, exits.ROWS_FAILED)


def warn_of_file(prompts: tuple[str, ...]) -> None:
    """Say on stderr that a prompt which is a file's name was hardly meant as one."""
    if len(prompts) == 1 and os.path.isfile(prompts[0]):
        name = prompts[0]
        output.warn(f"{name} is read as a prompt. To read the file of that name: -i {name}")


def _source(flags: Mapping[str, Any]) -> str:
    return "stdin" if flags["file"] in (None, "-") else str(flags["file"])
