"""The options of the commands that process rows."""

from __future__ import annotations

from typing import Any

import click

from core.system.outputs import output_type
from core_cli import settings
from core_cli.reading import FORMS

OUTPUT_FILE = output_type(click.Path(dir_okay=False))
FILE = click.Path(exists=True, dir_okay=False, readable=True)
FILE_OR_STDIN = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True)


class Shard(click.ParamType[tuple[int, int]]):
    """A shard ``i/n``: the i-th of n, from 1."""

    name = "I/N"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        """Return both numbers. Fails for any other text."""
        if isinstance(value, tuple):
            return value
        part, slash, parts = str(value).partition("/")
        if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
            self.fail(f"expected I/N with I from 1 to N, got {value!r}.", param, ctx)
        return int(part), int(parts)


class Numbers(click.ParamType[tuple[int, ...]]):
    """Comma-separated numbers from 1, such as ``1,8,32``."""

    name = "N,N"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        """Return the numbers, each once. Fails for any other text."""
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        if not all(part.isdecimal() and 1 <= int(part) <= 4096 for part in parts):
            self.fail(f"expected N or N,N with N from 1 to 4096, got {value!r}.", param, ctx)
        return tuple(dict.fromkeys(map(int, parts)))


_ALLOW_BLANK = click.option(
    "--allow-blank",
    is_flag=True,
    help="Accept rows with blank text. [default: reject them]",
)
_ROWS = [
    click.argument("prompts", nargs=-1, metavar="[PROMPT]..."),
    settings.model_option,
    click.option(
        "-i", "--input", "file", type=FILE_OR_STDIN, help="Read rows from FILE; - is stdin."
    ),
    click.option(
        *("--format", "form"),
        type=click.Choice(["auto", *FORMS, "openai"]),
        default="auto",
        help="Input format; auto detects it by name and content. [default: auto]",
    ),
    click.option("--field", help="Input field with the text. [default: prompt or text]"),
    click.option("--id-field", help="Input field with the row id. [default: custom_id or id]"),
    click.option(
        "--limit", type=click.IntRange(1), metavar="N", help="Process only the first N rows."
    ),
    click.option(
        "--template",
        help=r"Prompt template; {text} and other {field}s are filled in, \n is a newline.",
    ),
    click.option("--template-file", type=FILE, help="Read the template from FILE."),
    _ALLOW_BLANK,
    click.option("--chat", is_flag=True, help="Use the model's chat template."),
    click.option("-s", "--system", help="System message; implies --chat."),
    settings.template_options,
    click.option(
        "--continue-final-message",
        is_flag=True,
        default=None,
        help="Continue the assistant message that ends a conversation.",
    ),
    click.option(
        "--new-turn",
        is_flag=True,
        default=None,
        help="Start a new answer after an assistant message that ends a conversation.",
    ),
    click.option(
        "--truncate",
        type=click.Choice(["left", "right", "middle"]),
        help="Truncate over-long texts on this side. [default: report the row as failed]",
    ),
    click.option(
        "--dedupe/--no-dedupe", default=True, help="Run identical prompts once. [default: on]"
    ),
]
_OUTPUT = [
    click.option(
        *("-o", "--output"),
        type=OUTPUT_FILE,
        metavar="OUT",
        help="Write results to OUT; the suffix sets the format.",
    ),
    click.option(
        "--to", type=click.Choice(FORMS), help="Output format. [default: from the suffix of OUT]"
    ),
    click.option("--json", "as_json", is_flag=True, help="Alias for --to jsonl."),
    click.option(
        "--keep",
        type=click.Choice(["all", "id", "none"]),
        default="all",
        help="Input fields to copy to the output. [default: all]",
    ),
    click.option("--resume", is_flag=True, help="Resume an interrupted job."),
    click.option("--overwrite", is_flag=True, help="Replace an OUT written by an earlier job."),
    click.option(
        "--shard",
        type=Shard(),
        help="Process every N-th row, from row I on; combine the outputs with merge.",
    ),
    click.option(
        "--report", type=OUTPUT_FILE, metavar="FILE", help="Write the run summary to FILE as JSON."
    ),
    click.option(
        "--progress/--no-progress",
        default=None,
        help="Show progress on stderr. [default: only on a terminal]",
    ),
    click.option(
        "--show-prompt", is_flag=True, help="Print the first prompt and its result, then exit."
    ),
    click.option("--dry-run", is_flag=True, help="Estimate tokens, time and memory, then exit."),
    click.option(
        "-v",
        "--verbose",
        is_flag=True,
        help="Report the backend and settings chosen, with reasons, on stderr.",
    ),
]


_EXAMPLES = [
    click.option(
        "-i", "--input", "file", type=FILE_OR_STDIN, help="Read rows from FILE; - is stdin."
    ),
    click.option(
        "--format",
        "form",
        type=click.Choice(["auto", *FORMS]),
        default="auto",
        help="Input format; auto detects it by name and content. [default: auto]",
    ),
    click.option("--field", help="Input field with the text. [default: prompt or text]"),
    click.option(
        "--limit", type=click.IntRange(1), metavar="N", help="Process only the first N rows."
    ),
    _ALLOW_BLANK,
]


def of_examples(command: Any) -> Any:
    """Decorate a command with the options for rows to fit or tune on."""
    return _with(command, _EXAMPLES)


def of_rows(command: Any) -> Any:
    """Decorate a command with the options for the model, rows and templates."""
    return _with(command, _ROWS)


def of_output(command: Any) -> Any:
    """Decorate a command with the options for the output."""
    return _with(command, _OUTPUT)


def _with(command: Any, flags: list[Any]) -> Any:
    for flag in reversed(flags):
        command = flag(command)
    return command
