"""Flags of the command line, turned into options of the library; wrong ones are usage errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from core.cli import completion
from core.sampling_options import SAMPLING_OPTIONS

if TYPE_CHECKING:
    from core.options import GenerateConfig, LoadConfig

SAMPLING = (*(option.name for option in SAMPLING_OPTIONS), "timeout")

LOAD = (
    *("backend", "context_len", "context_overflow", "gpu_layers", "parallel_slots"),
    "adapter_path",
)
LOAD_OPTION = "A load option: context_len=512, or one of the backend's own."

_THINKING = "enable_thinking"
_MOST_LABELS = 64 * 2**20  # bytes of a file of labels


model_option = click.option(
    *("-m", "--model"),
    envvar="INFER_MODEL",
    metavar="MODEL",
    help="A path, or a name that discover shows; or set INFER_MODEL.  [required]",
    shell_complete=completion.models,
)


def need_model(flags: Mapping[str, Any]) -> None:
    """Raise `click.UsageError` where no model is named."""
    if flags["model"] is None:
        raise click.UsageError(
            "Missing option '-m' / '--model'. Give a model's path or name with it, or set "
            "INFER_MODEL; infer-cli discover lists models."
        )


def one_model(given: str | None, flags: Mapping[str, Any]) -> str:
    """The model of a command that takes it as an argument as well, which goes before INFER_MODEL.

    Raises `click.UsageError` where none is named, or both are.
    """
    from click.core import ParameterSource

    source = click.get_current_context().get_parameter_source("model")
    if given is None and flags["model"] is None:
        raise click.UsageError(
            "Missing argument 'MODEL'. Give a model's path or name, or set INFER_MODEL; "
            "infer-cli discover lists models."
        )
    if given is None:
        return str(flags["model"])
    if source is ParameterSource.COMMANDLINE:
        raise click.UsageError(f"The model is given twice: {given!r}, and with -m.")
    return given


def answer_options(command: Any) -> Any:
    """Decorate a command with the flags that say where an answer ends."""
    flags = [
        click.option("-n", "--max-tokens", type=int, help="The most of an answer; default: 256."),
        click.option("--stop", multiple=True, metavar="TEXT", help="End before this; repeatable."),
        click.option(
            "--stop-token", "stop_tokens", type=int, multiple=True, help="End at this token id."
        ),
    ]
    for flag in reversed(flags):
        command = flag(command)
    return command


def answer_config(flags: Mapping[str, Any], **more: Any) -> GenerateConfig:
    """The options of a request for an answer. Raises `OptionError`."""
    from core.options import GenerateConfig

    options = given(flags, (*SAMPLING, "max_tokens")) | template_config(flags)
    return GenerateConfig(stop=flags["stop"], stop_tokens=flags["stop_tokens"], **options, **more)


def sampling_options(command: Any) -> Any:
    """Decorate a command with the flags of `SAMPLING`; those not given arrive as None."""
    flags = [
        *(
            click.option(*option.flags, option.name, type=option.kind, help=option.help)
            for option in SAMPLING_OPTIONS
        ),
        click.option(
            "--timeout", type=float, help="Seconds that an answer, or a block of rows, may take."
        ),
    ]
    for flag in reversed(flags):
        command = flag(command)
    return command


def template_options(command: Any) -> Any:
    """Decorate a command with the flags that the model's chat template is given."""
    flags = [
        click.option(
            "--chat-template-kwargs",
            metavar="JSON",
            help="Variables of the chat template, by name; implies --chat.",
        ),
        click.option(
            "--thinking/--no-thinking",
            default=None,
            help='The same as {"enable_thinking": true} or false there.',
        ),
        click.option(
            "--opening",
            metavar="TEXT",
            help="First words of the answer, after the chat prompt; implies --chat.",
        ),
    ]
    for flag in reversed(flags):
        command = flag(command)
    return command


def template_config(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a chat template that were given, as `core.GenerateConfig` has them.

    Raises `click.UsageError`, and `click.BadParameter` for what is not a JSON object.
    """
    variables, thinking = _variables(flags["chat_template_kwargs"]), flags["thinking"]
    if thinking is not None:
        if _THINKING in variables:
            raise click.UsageError(f"--thinking and {_THINKING} are the same: give one of them.")
        variables[_THINKING] = thinking
    options: dict[str, Any] = {"chat_template_kwargs": variables} if variables else {}
    if flags.get("continue_final_message"):
        options["continue_final_message"] = True
    return options


def uses_template(flags: Mapping[str, Any]) -> bool:
    """Return whether texts go through the chat template: with --chat, or a flag that implies it."""
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
            f"{text!r:.80} is not a JSON object: {error}. Give one such as "
            "'{\"enable_thinking\": false}'.",
            param_hint="'--chat-template-kwargs'",
        ) from None


def load_options(command: Any) -> Any:
    """Decorate a command with the flags that say how a model is loaded."""
    flags = [
        click.option(
            "--backend",
            metavar="NAME",
            help="Default: the best one here.",
            shell_complete=completion.backends,
        ),
        click.option("--context-len", type=int, help="Tokens; default: the model's."),
        click.option(
            "--context-overflow",
            type=click.Choice(["stop", "rotate"]),
            help="What a full context does to an answer; default: stop.",
        ),
        click.option("--gpu-layers", "-ngl", type=int, help="Layers on the GPU; default: all."),
        click.option("--parallel-slots", "--parallel", type=int, help="Answers side by side."),
        click.option("--adapter-path", "--adapter", metavar="PATH", help="A LoRA adapter."),
        click.option("-O", "--option", "pairs", multiple=True, metavar="K=V", help=LOAD_OPTION),
    ]

    for flag in reversed(flags):
        command = flag(command)
    return command


def load_config(flags: Mapping[str, Any]) -> LoadConfig:
    """The options of a load, from their own flags and from ``-O``.

    Raises `click.BadParameter` for one that is given both ways, `OptionError` for a wrong value.
    """
    from core.options import LoadConfig

    own = parse_pairs(flags["pairs"])
    asked = given(flags, LOAD)
    if twice := sorted(own.keys() & asked.keys()):
        message = f"{twice[0]!r} is given with a flag of its own too."
        raise click.BadParameter(message, param_hint="'-O'")
    named = {name: own.pop(name) for name in LOAD if name in own}
    return LoadConfig(**{**asked, **named, "options": own})


def given(flags: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The flags that the user gave, so that a backend sees no option nobody asked for."""
    return {name: flags[name] for name in names if flags[name] is not None}


def parse_pairs(pairs: Sequence[str]) -> dict[str, object]:
    """``K=V`` pairs; V is read as JSON (3, true, null, "3"), and as text when it is none."""
    options: dict[str, object] = {}
    for number, pair in enumerate(pairs, 1):
        name, equals, value = pair.partition("=")
        if not equals or not name:
            message = f"option {number} is not of the form K=V. It may be a key, and is not shown."
            raise click.BadParameter(message, param_hint="'-O'")
        if name in options:
            raise click.BadParameter(f"{name!r} is given twice.", param_hint="'-O'")
        options[name] = _value(value)
    return options


def _value(text: str) -> object:
    import msgspec

    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
    except RecursionError:
        raise click.BadParameter("its JSON is nested too deeply.", param_hint="'-O'") from None


def parse_labels(commas: str | None, file: str | None) -> tuple[str, ...]:
    """Labels from ``a,b,c`` or from a file with one a line; none when neither is given."""
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
        raise click.BadParameter(f"{file} holds no labels.", param_hint="'--labels-file'")
    return labels
