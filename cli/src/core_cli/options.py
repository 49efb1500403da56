"""Options of the commands, as click declares them; `core_cli.flags` has their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from core.sampling_options import SAMPLING_OPTIONS
from core.system.outputs import output_type
from core_cli import completion
from core_cli.reading import FORMS, INPUT_FORMS

LOAD_OPTION = (
    "Set a load option, such as context_len=512; backends -v lists backend-specific ones. "
    "Repeatable."
)

OUTPUT_FILE = output_type(click.Path(dir_okay=False))
FILE = click.Path(exists=True, dir_okay=False, readable=True)
FILE_OR_STDIN = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True)
_MODEL = "Model path, or a name listed by discover. [env: INFER_MODEL]"


class _ModelName(click.types.StringParamType):
    """A model, whose path may contain spaces."""

    def split_envvar_value(self, rv: str) -> list[str]:
        """Return the only model of an environment variable."""
        return [rv] if rv else []


def _model_option(text: str, *names: str, multiple: bool = False) -> Callable[[Any], Any]:
    return click.option(
        *("-m", "--model", *names),
        type=_ModelName(),
        envvar="INFER_MODEL",
        metavar="MODEL",
        help=text,
        multiple=multiple,
        shell_complete=completion.models,
    )


model_option = _model_option(f"{_MODEL}  [required]")
optional_model_option = _model_option(_MODEL)
"""The same for commands that may take the model from an argument or a file."""
several_models_option = _model_option(
    f"{_MODEL} Repeatable: compares models.", "models", multiple=True
)
"""The same for commands that compare several models."""


def answer_options(longest: str) -> Callable[[Any], Any]:
    """Return a decorator that adds the options that limit an answer; ``longest`` by default."""
    flags = [
        click.option(
            *("-n", "--max-tokens"),
            type=int,
            help=f"Maximum tokens per answer. [default: {longest}]",
        ),
        click.option("--stop", multiple=True, metavar="TEXT", help="Stop before TEXT. Repeatable."),
        click.option(
            "--stop-token",
            "stop_tokens",
            type=int,
            multiple=True,
            help="Stop at this token id. Repeatable.",
        ),
    ]
    return lambda command: _with(command, flags)


def sampling_options(command: Any) -> Any:
    """Decorate a command with the flags of `SAMPLING`; those not given arrive as None."""
    flags = [
        *(
            click.option(
                *option.flags,
                option.name,
                type=option.kind,
                help=_with_default(option.help, option.default),
            )
            for option in SAMPLING_OPTIONS
        ),
        click.option(
            "--timeout", type=float, help="Time limit in seconds per answer or block of rows."
        ),
    ]
    return _with(command, flags)


def template_options(command: Any) -> Any:
    """Decorate a command with the options of the chat template."""
    flags = [
        click.option(
            "--chat-template-kwargs",
            metavar="JSON",
            help="Chat template variables as a JSON object; implies --chat.",
        ),
        click.option(
            "--thinking/--no-thinking",
            default=None,
            help="Set the chat template variable enable_thinking; implies --chat.",
        ),
        click.option(
            "--opening",
            metavar="TEXT",
            help="Begin the answer with TEXT, after the chat prompt; implies --chat.",
        ),
    ]
    return _with(command, flags)


def _format_option(*more: str) -> Callable[[Any], Any]:
    return click.option(
        *("--format", "form"),
        type=click.Choice(["auto", *INPUT_FORMS, *more]),
        default="auto",
        help="Input format; auto detects it by name and content. [default: auto]",
    )


format_option = _format_option()
encoding_option = click.option(
    "--encoding",
    metavar="NAME",
    help="Encoding of a text input, such as cp1252 or utf-16. [default: utf-8]",
)
labels_option = click.option(
    "--labels",
    metavar="A,B,C",
    help="Comma-separated labels; put one that contains a comma in double quotes: '\"a, b\",c'. "
    "[default: those in the field of --gold]",
)
gold_option = click.option(
    "--gold", metavar="FIELD", help="Input field with the gold (true) label."
)
task_option = click.option(
    "--task", type=FILE, help="Take prompt, labels and calibration from a task."
)
labels_file_option = click.option(
    "--labels-file", type=FILE, help="Read labels from FILE, one per line."
)
label_prefix_option = click.option(
    "--label-prefix", help="Text between prompt and label. [default: a space, if it fits]"
)
label_sentence_option = click.option(
    "--label-sentence",
    metavar="TEXT",
    help="Sentence of a label, {label} filled in, that an encoder compares with the text. "
    "[default: This text is about {label}.]",
)
verbose_option = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Report the backend and settings chosen, with reasons, on stderr.",
)


def question_options(command: Any) -> Any:
    """Decorate a command with the options of one question about a text, apart from its labels."""
    template = click.option(
        "--template", help=r"Prompt template; {text} is filled in, \n is a newline."
    )
    template_file = click.option("--template-file", type=FILE, help="Read the template from FILE.")
    of_labels = [labels_file_option, label_prefix_option, label_sentence_option]
    return _with(command, [template, template_file, *of_labels])


def load_options(command: Any) -> Any:
    """Decorate a command with the load options."""
    flags = [
        click.option(
            "--backend",
            metavar="NAME",
            help="Backend to use. [default: best available]",
            shell_complete=completion.backends,
        ),
        click.option(
            "--context-len", type=int, help="Context length in tokens. [default: from the model]"
        ),
        click.option(
            "--context-overflow",
            type=click.Choice(["stop", "rotate"]),
            help="When the context is full: stop, or drop the oldest tokens (rotate). "
            "[default: stop]",
        ),
        click.option(
            "--gpu-layers",
            "-ngl",
            type=int,
            help="Number of layers to place on the GPU. [default: all]",
        ),
        click.option(
            "--parallel-slots",
            "--parallel",
            type=int,
            help="Sequences to decode concurrently. [default: backend's choice]",
        ),
        click.option(
            "--adapter-path", "--adapter", metavar="PATH", help="Load the LoRA adapter at PATH."
        ),
        click.option("-O", "--option", "pairs", multiple=True, metavar="K=V", help=LOAD_OPTION),
    ]

    return _with(command, flags)


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
_FIELD = click.option(
    *("--text-field", "field"),
    help="Input field with the text; dots select nested fields: mail.body. "
    "[default: prompt or text]",
)
_TRUNCATE = click.option(
    "--truncate",
    type=click.Choice(["left", "right", "middle"]),
    help="Truncate over-long texts on this side. [default: report the row as failed]",
)
_PROGRESS = click.option(
    "--progress/--no-progress",
    default=None,
    help="Show progress on stderr. [default: only on a terminal]",
)
_ROWS = [
    click.argument("prompts", nargs=-1, metavar="[PROMPT]..."),
    model_option,
    click.option(
        "-i", "--input", "file", type=FILE_OR_STDIN, help="Read rows from FILE; - is stdin."
    ),
    _format_option("openai"),
    encoding_option,
    _FIELD,
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
    template_options,
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
    _TRUNCATE,
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
    _PROGRESS,
    click.option(
        "--show-prompt", is_flag=True, help="Print the first prompt and its result, then exit."
    ),
    click.option("--dry-run", is_flag=True, help="Estimate tokens, time and memory, then exit."),
    verbose_option,
]


_EXAMPLES = [
    click.option(
        "-i", "--input", "file", type=FILE_OR_STDIN, help="Read rows from FILE; - is stdin."
    ),
    format_option,
    encoding_option,
    _FIELD,
    click.option(
        "--limit", type=click.IntRange(1), metavar="N", help="Process only the first N rows."
    ),
    _ALLOW_BLANK,
    _TRUNCATE,
    _PROGRESS,
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


def _with_default(text: str, default: float | None) -> str:
    return text if default is None else f"{text} [default: {default:g}]"
