"""The flags of the commands that ask a model about rows."""

from __future__ import annotations

from typing import Any

import click

from core.cli import settings
from core.cli.reading.forms import FORMS
from core.system.outputs import output_type

OUTPUT_FILE = output_type(click.Path(dir_okay=False))
FILE = click.Path(exists=True, dir_okay=False, readable=True)
FILE_OR_STDIN = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True)


class Shard(click.ParamType[tuple[int, int]]):
    """``i/n``: the i-th of n parts, from 1."""

    name = "I/N"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        """Both numbers. Fails for what is none."""
        if isinstance(value, tuple):
            return value
        part, slash, parts = str(value).partition("/")
        if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
            self.fail(f"{value!r} is not of the form I/N with I from 1 to N.", param, ctx)
        return int(part), int(parts)


class Numbers(click.ParamType[tuple[int, ...]]):
    """``1,8,32``: numbers from 1."""

    name = "N,N"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        """The numbers, each once. Fails for what is none."""
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        if not all(part.isdecimal() and 1 <= int(part) <= 4096 for part in parts):
            self.fail(f"{value!r} is not of the form N or N,N with N from 1 to 4096.", param, ctx)
        return tuple(dict.fromkeys(map(int, parts)))


_ALLOW_BLANK = click.option(
    "--allow-blank", is_flag=True, help="Use rows whose text is blank. Default: they fail."
)
_ROWS = [
    click.argument("prompts", nargs=-1, metavar="[PROMPT]..."),
    settings.model_option,
    click.option("-i", "--input", "file", type=FILE_OR_STDIN, help="Rows; - is stdin."),
    click.option(
        *("--format", "form"),
        type=click.Choice(["auto", *FORMS, "openai"]),
        default="auto",
        help="Of the input; auto goes by name and content.",
    ),
    click.option("--field", help="The field that holds the text."),
    click.option("--id-field", help="The field that names a row; default: custom_id or id."),
    click.option("--limit", type=click.IntRange(1), metavar="N", help="The first N rows only."),
    click.option("--template", help=r'The prompt: "...{text}...", also {other fields}, \n.'),
    click.option("--template-file", type=FILE, help="A file that holds it."),
    _ALLOW_BLANK,
    click.option("--chat", is_flag=True, help="Use the model's chat template."),
    click.option("-s", "--system", help="A system message; implies --chat."),
    settings.template_options,
    click.option(
        "--continue-final-message",
        is_flag=True,
        default=None,
        help="Continue the assistant's message in which a conversation ends.",
    ),
    click.option(
        "--new-turn", is_flag=True, default=None, help="Answer after such a message instead."
    ),
    click.option(
        "--truncate",
        type=click.Choice(["left", "right", "middle"]),
        help="What goes of a text that is too long; default: its row fails.",
    ),
    click.option(
        "--dedupe/--no-dedupe", default=True, help="Ask equal prompts once; default: yes."
    ),
]
_OUTPUT = [
    click.option(
        *("-o", "--output"),
        type=OUTPUT_FILE,
        metavar="OUT",
        help="A file; its suffix says the form.",
    ),
    click.option("--to", type=click.Choice(FORMS), help="The form that is written."),
    click.option("--json", "as_json", is_flag=True, help="The same as --to jsonl."),
    click.option(
        "--keep",
        type=click.Choice(["all", "id", "none"]),
        default="all",
        help="What of the input goes along; default: all.",
    ),
    click.option("--resume", is_flag=True, help="Go on with a job that was broken off."),
    click.option("--overwrite", is_flag=True, help="Replace an OUT that a job has written."),
    click.option("--shard", type=Shard(), help="This part of the rows only; see merge."),
    click.option("--report", type=OUTPUT_FILE, metavar="FILE", help="The summary as JSON."),
    click.option("--progress/--no-progress", default=None, help="Default: on a terminal."),
    click.option("--show-prompt", is_flag=True, help="Show the first row's prompt, and end."),
    click.option("--dry-run", is_flag=True, help="Say what it would cost, and end."),
    click.option("-v", "--verbose", is_flag=True, help="Say on stderr what was chosen, and why."),
]


_EXAMPLES = [
    click.option("-i", "--input", "file", type=FILE_OR_STDIN, help="Rows; - is stdin."),
    click.option("--format", "form", type=click.Choice(["auto", *FORMS]), default="auto"),
    click.option("--field", help="The field that holds the text."),
    click.option("--limit", type=click.IntRange(1), metavar="N", help="The first N rows only."),
    _ALLOW_BLANK,
]


def of_examples(command: Any) -> Any:
    """Decorate a command with the flags that say which rows something is found out by."""
    return _with(command, _EXAMPLES)


def of_rows(command: Any) -> Any:
    """Decorate a command with the flags that say what is asked: the model, rows, templates."""
    return _with(command, _ROWS)


def of_output(command: Any) -> Any:
    """Decorate a command with the flags that say what is written, and where."""
    return _with(command, _OUTPUT)


def _with(command: Any, flags: list[Any]) -> Any:
    for flag in reversed(flags):
        command = flag(command)
    return command
