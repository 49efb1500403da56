"""The flags of a command as typed values, made once, where click ends.

Each class has the flags that its commands share, named as the parameters of click are. A flag that
a command lacks has the default value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import click

from core_cli import settings
from core_cli.reading import FORMS, form_of_name

if TYPE_CHECKING:
    from core.options import GenerateConfig, LoadConfig

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
        """Return the load options with flags of their own, except the backend; None if not given.

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
        """Return the options of a load, from their own flags and from ``-O``.

        Raises `click.BadParameter` for one given in both ways, `OptionError` for a wrong value.
        """
        from core.options import LoadConfig

        own = settings.parse_pairs(self.pairs)
        flags = given(backend=self.backend, **self.load_options())
        if twice := sorted(own.keys() & flags.keys()):
            message = f"{twice[0]!r} is also given with its own flag. Remove one."
            raise click.BadParameter(message, param_hint="'-O'")
        named: dict[str, Any] = {name: own.pop(name) for name in settings.LOAD if name in own}
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

        Raises `click.UsageError`, and `click.BadParameter` for what is not a JSON object.
        """
        variables = settings.parse_variables(self.chat_template_kwargs)
        if self.thinking is not None:
            if settings.THINKING in variables:
                raise click.UsageError(
                    f"--thinking and {settings.THINKING} set the same variable. Remove one."
                )
            variables[settings.THINKING] = self.thinking
        options: dict[str, Any] = {"chat_template_kwargs": variables} if variables else {}
        if self.continue_final_message:
            options["continue_final_message"] = True
        return options

    def uses_template(self) -> bool:
        """Return whether texts use the chat template: with --chat or a flag that implies it."""
        if any(flag is not None for flag in (self.system, self.thinking, self.opening)):
            return True
        return self.chat or bool(settings.parse_variables(self.chat_template_kwargs))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFlags(SamplingFlags):
    """Flags of the commands that run rows: their input, their question, their output."""

    prompts: tuple[str, ...] = ()
    file: str | None = None
    form: str = "auto"
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
        """The output format: as requested, else by the suffix, else JSON lines."""
        requested = self.to or ("jsonl" if self.as_json else None)
        form = requested or form_of_name(self.output or "")
        assert form is None or form in FORMS
        return form or ("text" if str(self.output).endswith(".txt") else "jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class FitFlags(LoadFlags):
    """Flags of the commands that fit or tune on rows: calibrate, tune, learn."""

    file: str | None = None
    form: str = "auto"
    field: str | None = None
    limit: int | None = None
    allow_blank: bool = False
    gold: str | None = None
    output: str | None = None
    overwrite: bool = False


def given(**options: Any) -> dict[str, Any]:
    """Return the options that the user gave, so that a backend gets no other."""
    return {name: value for name, value in options.items() if value is not None}
