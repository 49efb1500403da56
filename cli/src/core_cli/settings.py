"""Turns flags of the command line into options of the library, or usage errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from core.sampling_options import SAMPLING_OPTIONS
from core_cli import completion

if TYPE_CHECKING:
    from core.options import GenerateConfig, LoadConfig

SAMPLING = (*(option.name for option in SAMPLING_OPTIONS), "timeout")

LOAD = (
    *("backend", "context_len", "context_overflow", "gpu_layers", "parallel_slots"),
    "adapter_path",
)
LOAD_OPTION = (
    "Set a load option, such as context_len=512; backends -v lists backend-specific ones. "
    "Repeatable."
)

_THINKING = "enable_thinking"
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


def need_model(flags: Mapping[str, Any]) -> None:
    """Raise `click.UsageError` if no model is given."""
    if flags["model"] is None:
        raise click.UsageError(
            "Missing option '-m' / '--model'. Pass a model's path or name, or set INFER_MODEL; "
            "infer-cli discover lists models."
        )


def one_model(given: str | None, flags: Mapping[str, Any]) -> str:
    """Return the model of a command with a MODEL argument, which overrides INFER_MODEL.

    Raises `click.UsageError` if none is given, or the argument and ``-m``.
    """
    from click.core import ParameterSource

    source = click.get_current_context().get_parameter_source("model")
    if given is None and flags["model"] is None:
        raise click.UsageError(
            "Missing argument 'MODEL'. Pass a model's path or name, or set INFER_MODEL; "
            "infer-cli discover lists models."
        )
    if given is None:
        return str(flags["model"])
    if source is ParameterSource.COMMANDLINE:
        raise click.UsageError(f"The model is given twice: as {given!r} and with -m. Remove one.")
    return given


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


def answer_config(flags: Mapping[str, Any], **more: Any) -> GenerateConfig:
    """Return the options of a generation request. Raises `OptionError`."""
    from core.options import GenerateConfig

    options = given(flags, (*SAMPLING, "max_tokens")) | template_config(flags)
    return GenerateConfig(stop=flags["stop"], stop_tokens=flags["stop_tokens"], **options, **more)


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
    for flag in reversed(flags):
        command = flag(command)
    return command


def _with_default(text: str, default: float | None) -> str:
    return text if default is None else f"{text} [default: {default:g}]"


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


def template_config(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chat template options given, for `core.GenerateConfig`.

    Raises `click.UsageError`, and `click.BadParameter` for what is not a JSON object.
    """
    variables, thinking = _variables(flags["chat_template_kwargs"]), flags["thinking"]
    if thinking is not None:
        if _THINKING in variables:
            raise click.UsageError(f"--thinking and {_THINKING} set the same variable. Remove one.")
        variables[_THINKING] = thinking
    options: dict[str, Any] = {"chat_template_kwargs": variables} if variables else {}
    if flags.get("continue_final_message"):
        options["continue_final_message"] = True
    return options


def uses_template(flags: Mapping[str, Any]) -> bool:
    """Return whether texts use the chat template: with --chat or a flag that implies it."""
    implied = any(flags[name] is not None for name in ("system", "thinking", "opening"))
    return implied or bool(flags["chat"] or _variables(flags["chat_template_kwargs"]))


def _variables(text: str | None) -> dict[str, object]:
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


def load_config(flags: Mapping[str, Any]) -> LoadConfig:
    """Return the options of a load, from their own flags and from ``-O``.

    Raises `click.BadParameter` for one given in both ways, `OptionError` for a wrong value.
    """
    from core.options import LoadConfig

    own = parse_pairs(flags["pairs"])
    asked = given(flags, LOAD)
    if twice := sorted(own.keys() & asked.keys()):
        message = f"{twice[0]!r} is also given with its own flag. Remove one."
        raise click.BadParameter(message, param_hint="'-O'")
    named = {name: own.pop(name) for name in LOAD if name in own}
    return LoadConfig(**{**asked, **named, "options": own})


def given(flags: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the flags that the user gave, so that a backend gets no other option."""
    return {name: flags[name] for name in names if flags[name] is not None}


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
