"""Turns flags of the command line into options of the library, or usage errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from core.sampling_options import SAMPLING_OPTIONS
from core_cli import completion

SAMPLING = (*(option.name for option in SAMPLING_OPTIONS), "timeout")

LOAD = (
    *("backend", "context_len", "context_overflow", "gpu_layers", "parallel_slots"),
    "adapter_path",
)
LOAD_OPTION = (
    "Set a load option, such as context_len=512; backends -v lists backend-specific ones. "
    "Repeatable."
)

# The help texts in `SAMPLING_OPTIONS` are part of the recorded signatures of the contract.
_SAMPLING_HELP = {
    "temperature": "Sampling temperature; 0 is greedy. [default: 0]",
    "top_k": "Sample from the K most likely tokens; 0 disables. [default: 0]",
    "typical_p": "Locally typical sampling threshold; 1 disables. [default: 1]",
    "top_p": "Nucleus sampling threshold; 1 disables. [default: 1]",
    "min_p": "Drop tokens below this fraction of the top token's probability; 0 disables. "
    "[default: 0]",
    "repeat_penalty": "Penalty for repeated tokens; 1 disables. [default: 1]",
    "seed": "Random seed; makes sampling repeatable.",
}
THINKING = "enable_thinking"
_MOST_LABELS = 64 * 2**20  # bytes of a file of labels


_MODEL = "Model path, or a name listed by discover. [env: INFER_MODEL]"


def _model_option(text: str) -> Callable[[Any], Any]:
    return click.option(
        *("-m", "--model"),
        envvar="INFER_MODEL",
        metavar="MODEL",
        help=text,
        shell_complete=completion.models,
    )


model_option = _model_option(f"{_MODEL}  [required]")
optional_model_option = _model_option(_MODEL)
"""The same for commands that may take the model from an argument or a file."""


def one_model(argument: str | None, option: str | None) -> str:
    """Return the model of a command with a MODEL argument, which overrides INFER_MODEL.

    Raises `click.UsageError` if none is given, or the argument and ``-m``.
    """
    from click.core import ParameterSource

    source = click.get_current_context().get_parameter_source("model")
    if argument is None and option is None:
        raise click.UsageError(
            "Missing argument 'MODEL'. Pass a model's path or name, or set INFER_MODEL; "
            "infer-cli discover lists models."
        )
    if argument is None:
        return str(option)
    if source is ParameterSource.COMMANDLINE:
        raise click.UsageError(
            f"The model is given twice: as {argument!r} and with -m. Remove one."
        )
    return argument


def answer_options(command: Any) -> Any:
    """Decorate a command with the options that limit an answer."""
    flags = [
        click.option(
            "-n", "--max-tokens", type=int, help="Maximum tokens per answer. [default: 256]"
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
    for flag in reversed(flags):
        command = flag(command)
    return command


def sampling_options(command: Any) -> Any:
    """Decorate a command with the flags of `SAMPLING`; those not given arrive as None."""
    flags = [
        *(
            click.option(
                *option.flags,
                option.name,
                type=option.kind,
                help=_SAMPLING_HELP.get(option.name, option.help),
            )
            for option in SAMPLING_OPTIONS
        ),
        click.option(
            "--timeout", type=float, help="Time limit in seconds per answer or block of rows."
        ),
    ]
    for flag in reversed(flags):
        command = flag(command)
    return command


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
    for flag in reversed(flags):
        command = flag(command)
    return command


def parse_variables(text: str | None) -> dict[str, object]:
    """Return the variables of a chat template. Raises `click.BadParameter` for another text."""
    if text is None:
        return {}
    import msgspec

    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise click.BadParameter(
            f"{text!r:.80} is not a JSON object: {error}. Pass an object such as "
            "'{\"enable_thinking\": false}'.",
            param_hint="'--chat-template-kwargs'",
        ) from None


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

    for flag in reversed(flags):
        command = flag(command)
    return command


def parse_pairs(pairs: Sequence[str]) -> dict[str, object]:
    """Return ``K=V`` pairs as options; V is JSON (3, true, null, "3"), else text."""
    options: dict[str, object] = {}
    for number, pair in enumerate(pairs, 1):
        name, equals, value = pair.partition("=")
        if not equals or not name:
            message = f"expected NAME=VALUE for option {number}; not shown, as it may be a secret."
            raise click.BadParameter(message, param_hint="'-O'")
        if name in options:
            raise click.BadParameter(f"{name!r} is given twice.", param_hint="'-O'")
        options[name] = value_of(value)
    return options


def value_of(text: str) -> object:
    """Return the value of an option: JSON, else the text. Raises `click.BadParameter`."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
    except RecursionError:
        raise click.BadParameter(
            "its JSON value is nested too deeply.", param_hint="'-O'"
        ) from None


def parse_labels(commas: str | None, file: str | None) -> tuple[str, ...]:
    """Return labels from ``a,b,c`` or from a file with one per line; none without either."""
    if commas is not None and file is not None:
        raise click.UsageError("Give --labels or --labels-file, not both.")
    if commas is not None:
        return _labels_of_text(commas)
    return () if file is None else _labels_of_file(file)


def _labels_of_text(commas: str) -> tuple[str, ...]:
    labels = tuple(label.strip() for label in commas.split(","))
    if "" in labels:
        raise click.BadParameter(
            f"label {labels.index('') + 1} of {len(labels)} in {commas!r} is empty. "
            "A label needs at least one character.",
            param_hint="'--labels'",
        )
    return labels


def _labels_of_file(file: str) -> tuple[str, ...]:
    with open(file, "rb") as stream:
        data = stream.read(_MOST_LABELS + 1)
    if len(data) > _MOST_LABELS:
        raise click.BadParameter(
            f"{file} is longer than {_MOST_LABELS} bytes.", param_hint="'--labels-file'"
        )

    try:
        lines = data.decode("utf-8-sig").splitlines()
        labels = tuple(line.strip() for line in lines if line.strip())
    except UnicodeDecodeError:
        raise click.BadParameter(f"{file} is not UTF-8.", param_hint="'--labels-file'") from None

    if not labels:
        raise click.BadParameter(f"{file} contains no labels.", param_hint="'--labels-file'")
    return labels
