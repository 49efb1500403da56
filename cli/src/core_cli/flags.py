"""The flags of a command as typed values, created once from the parameters of click.

Each class has the flags that its commands share, under the names of click's parameters. A flag that
a command lacks has the default value.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import click

from core_cli.reading import FORMS, form_of_name

if TYPE_CHECKING:
    from core.options import GenerateConfig, LoadConfig

_THINKING = "enable_thinking"
_MOST_LABELS = 64 * 2**20  # bytes of a file of labels

Keep = Literal["all", "id", "none"]
Side = Literal["left", "right", "middle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFlags:
    """Flags of every command that loads a model."""

    model: str | None = None
    backend: str | None = None
    context_len: int | None = None
    context_overflow: Literal["stop", "rotate"] | None = None
    gpu_layers: int | None = None
    parallel_slots: int | None = None
    adapter_path: str | None = None
    pairs: tuple[str, ...] = ()
    verbose: bool = False

    def need_model(self) -> str:
        """Return the model. Raises `click.UsageError` if none is given."""
        if self.model is None:
            raise click.UsageError(
                "Missing option '-m' / '--model'. Pass a model's path or name, or set INFER_MODEL; "
                "infer-cli discover lists models."
            )
        return self.model

    def load_options(self) -> dict[str, object]:
        """Return the load options that have a flag, except the backend; None if not given.

        They are part of a job's identity, in this order.
        """
        return {
            "context_len": self.context_len,
            "context_overflow": self.context_overflow,
            "gpu_layers": self.gpu_layers,
            "parallel_slots": self.parallel_slots,
            "adapter_path": self.adapter_path,
        }

    def load_config(self) -> LoadConfig:
        """Return the load options, from flags and from ``-O``.

        Raises `click.BadParameter` for an option given both ways, `OptionError` for a wrong value.
        """
        from core.options import LoadConfig

        own = parse_pairs(self.pairs)
        options = {"backend": self.backend, **self.load_options()}
        flags = given(**options)
        if twice := sorted(own.keys() & flags.keys()):
            message = f"{twice[0]!r} is also given with its own flag. Remove one."
            raise click.BadParameter(message, param_hint="'-O'")
        named: dict[str, Any] = {name: own.pop(name) for name in options if name in own}
        return LoadConfig(**{**flags, **named, "options": own})

    def with_side(self, side: str, names: Sequence[str]) -> Self:
        """Return the flags for a value of ``--compare``: ``NAME=VALUE``, or else a model.

        Raises `click.UsageError` for a name that is not in ``names``.
        """
        name, equals, value = side.partition("=")
        if not equals:
            return replace(self, model=side)
        flag = name.replace("-", "_")
        if flag not in names:
            known = ", ".join(f"{name.replace('_', '-')}=..." for name in names)
            raise click.UsageError(
                f"--compare {name}=... is not supported. Pass a model, or one of {known}."
            )
        changed: dict[str, Any] = {flag: value}
        return replace(self, **changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingFlags(LoadFlags):
    """Flags of the commands that sample or read tokens: samplers, limits, chat template."""

    temperature: float | None = None
    top_k: int | None = None
    typical_p: float | None = None
    top_p: float | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    seed: int | None = None
    timeout: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()
    chat: bool = False
    system: str | None = None
    chat_template_kwargs: str | None = None
    thinking: bool | None = None
    opening: str | None = None
    continue_final_message: bool | None = None

    def answer_config(self, **more: Any) -> GenerateConfig:
        """Return the options of a generation request. Raises `OptionError`."""
        from core.options import GenerateConfig

        options = self.sampling() | given(max_tokens=self.max_tokens) | self.template_config()
        return GenerateConfig(stop=self.stop, stop_tokens=self.stop_tokens, **options, **more)

    def sampling(self) -> dict[str, Any]:
        """Return the sampling options given, and the timeout, for `core.GenerateConfig`."""
        return given(
            temperature=self.temperature,
            top_k=self.top_k,
            typical_p=self.typical_p,
            top_p=self.top_p,
            min_p=self.min_p,
            repeat_penalty=self.repeat_penalty,
            seed=self.seed,
            timeout=self.timeout,
        )

    def template_config(self) -> dict[str, Any]:
        """Return the chat template options given, for `core.GenerateConfig`.

        Raises `click.UsageError`, and `click.BadParameter` for a text that is not a JSON object.
        """
        variables = parse_variables(self.chat_template_kwargs)
        if self.thinking is not None:
            if _THINKING in variables:
                raise click.UsageError(
                    f"--thinking and {_THINKING} set the same variable. Remove one."
                )
            variables[_THINKING] = self.thinking
        options: dict[str, Any] = {"chat_template_kwargs": variables} if variables else {}
        if self.continue_final_message:
            options["continue_final_message"] = True
        return options

    def uses_template(self) -> bool:
        """Return whether texts use the chat template: with --chat or a flag that implies it."""
        if any(flag is not None for flag in (self.system, self.thinking, self.opening)):
            return True
        return self.chat or bool(parse_variables(self.chat_template_kwargs))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFlags(SamplingFlags):
    """Flags of the commands that run rows: their input, their question, their output."""

    prompts: tuple[str, ...] = ()
    file: str | None = None
    form: str = "auto"
    encoding: str | None = None
    field: str | None = None
    id_field: str | None = None
    limit: int | None = None
    allow_blank: bool | None = None

    template: str | None = None
    template_file: str | None = None
    labels: str | None = None
    labels_file: str | None = None
    labels_only: bool = False
    label_prefix: str | None = None
    label_sentence: str | None = None
    task: str | None = None
    head: str | None = None
    min_margin: float | None = None
    gold: str | None = None
    return_logprobs: bool | None = None
    new_turn: bool | None = None
    truncate: Side | None = None
    dedupe: bool = False

    output: str | None = None
    to: str | None = None
    as_json: bool = False
    keep: Keep = "all"
    resume: bool = False
    overwrite: bool = False
    shard: tuple[int, int] | None = None
    report: str | None = None
    plot: str | None = None
    progress: bool | None = None
    show_prompt: bool = False
    dry_run: bool = False

    @property
    def output_form(self) -> str:
        """The output format: as requested, else by the suffix, else JSON lines.

        Raises `click.UsageError` for a suffix that stands for another format.
        """
        requested = self.to or ("jsonl" if self.as_json else None)
        suffix = os.path.splitext(self.output or "")[1].lower()
        form = requested or ("text" if suffix == ".txt" else form_of_name(self.output or ""))
        if form in FORMS:
            return form
        if suffix:
            raise click.UsageError(
                f"{self.output}: {suffix} is not an output format. Use .jsonl, .json, .csv, .tsv, "
                ".parquet or .txt; --to sets the format for any other name."
            )
        return "jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitFlags(LoadFlags):
    """Flags of the commands that fit or tune on rows: calibrate, tune, learn."""

    file: str | None = None
    form: str = "auto"
    encoding: str | None = None
    field: str | None = None
    limit: int | None = None
    allow_blank: bool = False
    truncate: Side | None = None
    gold: str | None = None
    output: str | None = None
    overwrite: bool = False
    progress: bool | None = None


def given(**options: Any) -> dict[str, Any]:
    """Return the options that the user gave, so that a backend gets no other."""
    return {name: value for name, value in options.items() if value is not None}


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
    """Return the labels of a text, a record of CSV: quotes keep the comma in ``"a, b",c``."""
    import csv

    try:
        (cells,) = csv.reader([commas], skipinitialspace=True, strict=True)
    except (csv.Error, ValueError) as error:
        raise click.BadParameter(
            f"{commas!r} cannot be read: {error}. A label that contains a comma or a double quote "
            "is put in double quotes, and quotes within it are doubled.",
            param_hint="'--labels'",
        ) from None
    labels = tuple(label.strip() for label in cells or [""])
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
