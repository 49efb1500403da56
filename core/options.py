"""Options of calls and of loads: defaults, ranges, and how keywords combine with a config.

Every entry point takes a config object, keywords, or both; keywords take precedence. The
TypedDicts below list the keywords of each operation, for type checkers and for checks at run time.

Config and keywords list each of `core.sampling_options` again, literally, because type checkers
cannot read a table; a test compares them. The end of this file lists the options in docstrings.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import FunctionType
from typing import Any, Literal, Protocol, TypedDict, TypeVar, cast, get_args, runtime_checkable

from core import validate
from core.errors import InvalidOptionError
from core.sampling_options import SAMPLING_OPTIONS

ContextOverflow = Literal["stop", "rotate"]
_OVERFLOWS = get_args(ContextOverflow)
LABEL_PLACE = "{label}"
LABEL_SENTENCE = f"This text is about {LABEL_PLACE}."
"""The default sentence of a label, for models that compare a text with sentences."""
C = TypeVar("C", "GenerateConfig", "LoadConfig")


@runtime_checkable
class CancelToken(Protocol):
    """An object with ``is_set()``, for example a ``threading.Event``."""

    def is_set(self) -> bool:
        """Return True once the request should stop."""
        ...


class RequestOptions(TypedDict, total=False):
    """Keywords common to all operations; ``score`` and similar operations take no others."""

    cancel: CancelToken | None
    timeout: float | None


class SamplingOptions(RequestOptions, total=False):
    """Keywords common to all operations that sample a token."""

    temperature: float
    top_k: int
    typical_p: float
    top_p: float
    min_p: float
    repeat_penalty: float
    seed: int | None
    return_logprobs: bool


class GenerateOptions(SamplingOptions, total=False):
    """Keywords of ``generate`` and ``batch_generate``."""

    max_tokens: int
    stop: str | tuple[str, ...] | list[str]
    stop_tokens: tuple[int, ...] | list[int]


class TemplateOptions(TypedDict, total=False):
    """Keywords of ``render_chat``; ``chat`` takes them as well."""

    chat_template_kwargs: Mapping[str, object] | None
    continue_final_message: bool


class ChatOptions(GenerateOptions, TemplateOptions, total=False):
    """Keywords of ``chat``."""


class ClassifyOptions(SamplingOptions, total=False):
    """Keywords of ``classify``."""

    return_logits: bool
    labels: tuple[str, ...] | list[str]
    label_prefix: str
    label_sentence: str
    labels_only: bool


class LoadOptions(TypedDict, total=False):
    """Keywords of ``load_model``."""

    backend: str
    context_len: int
    context_overflow: ContextOverflow
    gpu_layers: int
    parallel_slots: int
    adapter_path: str | os.PathLike[str] | None
    options: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateConfig:
    """Options of one request. An invalid value raises `InvalidOptionError` with the option's name.

    ``max_tokens`` is the maximum number of generated tokens. The output ends before any of the
    texts in ``stop`` and before any of the token ids in ``stop_tokens``. ``seed`` makes sampling
    repeatable. ``return_logprobs`` adds the log-probability of each token, ``return_logits`` the
    logits of each ``classify`` result. ``classify`` chooses among ``labels``, each appended to the
    prompt and ``label_prefix``; white space in the prefix is dropped if the text does not need it
    (`core.kit.labels.unspaced`). A model with `core.Capability.LABEL_SENTENCES` compares the text
    with ``label_sentence`` instead, in which ``{label}`` is the label. ``cancel`` is an object with
    ``is_set()``, for example an event; ``timeout`` is in seconds, for the entire call.

    ``temperature=0`` is greedy, whatever the filters are; ``top_k=0``, ``typical_p=1``,
    ``top_p=1``, ``min_p=0`` and ``repeat_penalty=1`` are off. The order is repeat penalty,
    typical_p, top_p, min_p, top_k, temperature, draw; the filters use the distribution at
    temperature 1. ``typical_p`` keeps the smallest set of tokens whose total probability exceeds
    it, adding tokens by how close their surprisal is to the entropy. It keeps at least one token,
    not necessarily the likeliest. The other filters treat the dropped tokens as impossible.

    ``chat_template_kwargs`` are variables for the chat template by name, such as
    ``{"enable_thinking": False}``, with JSON values. ``continue_final_message`` continues the last
    message, which must be the assistant's, instead of starting a new turn.

    With ``labels_only`` only ``label`` is guaranteed: ``token``, ``logprobs`` and ``label_mass``
    may be None. ``probabilities`` and ``margin`` are set if each label is one token after the
    prompt; if labels have several tokens they may be None, because the search stops once no
    remaining label can win. ``return_logits`` and ``return_logprobs`` override ``labels_only``. A
    config may set fields that an operation does not use.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    typical_p: float = 1.0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()
    return_logprobs: bool = False
    return_logits: bool = False
    labels: tuple[str, ...] = ()
    label_prefix: str = " "
    label_sentence: str = LABEL_SENTENCE
    labels_only: bool = False
    cancel: CancelToken | None = None
    timeout: float | None = None
    chat_template_kwargs: Mapping[str, object] | None = field(default=None, hash=False)
    continue_final_message: bool = False

    def __post_init__(self) -> None:
        _normalise(
            self,
            max_tokens=validate.integer("max_tokens", self.max_tokens, 1),
            **{row.name: row.checked(getattr(self, row.name)) for row in SAMPLING_OPTIONS},
            stop=_stop(self.stop),
            stop_tokens=validate.integers("stop_tokens", self.stop_tokens, 0),
            return_logprobs=validate.flag("return_logprobs", self.return_logprobs),
            return_logits=validate.flag("return_logits", self.return_logits),
            labels=validate.labels("labels", self.labels),
            label_prefix=_label_prefix(self.label_prefix),
            label_sentence=_label_sentence(self.label_sentence),
            labels_only=validate.flag("labels_only", self.labels_only),
            cancel=_cancel(self.cancel),
            timeout=_timeout(self.timeout),
            chat_template_kwargs=validate.template_variables(
                "chat_template_kwargs", self.chat_template_kwargs
            ),
            continue_final_message=validate.flag(
                "continue_final_message", self.continue_final_message
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadConfig:
    """Options of a load.

    ``backend`` is the name of a backend; if empty, the best one on this machine is selected.
    ``adapter_path`` is the path of a LoRA adapter. ``context_len=0`` is the model's own context
    length, ``gpu_layers=-1`` is all layers.

    With ``context_overflow="rotate"`` a generation continues when the context is full, and the
    oldest positions are dropped; a prompt longer than the context is still an error.
    ``parallel_slots=0`` is the backend's default. ``options`` are backend-specific options by name;
    a secret among them, such as ``api_key``, becomes a `core.Secret`.
    """

    backend: str = ""
    context_len: int = 0
    context_overflow: ContextOverflow = "stop"
    gpu_layers: int = -1
    parallel_slots: int = 0
    adapter_path: str | os.PathLike[str] | None = None
    options: Mapping[str, object] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _normalise(
            self,
            backend=validate.text("backend", self.backend),
            context_len=validate.integer("context_len", self.context_len, 0),
            context_overflow=validate.one_of("context_overflow", self.context_overflow, _OVERFLOWS),
            gpu_layers=validate.integer("gpu_layers", self.gpu_layers, -1),
            parallel_slots=validate.integer("parallel_slots", self.parallel_slots, 0),
            adapter_path=validate.path("adapter_path", self.adapter_path),
            options=validate.load_options("options", self.options),
        )


def resolve_generate(
    config: GenerateConfig | None,
    options: GenerateOptions | ChatOptions,
    operation: str = "generate",
) -> GenerateConfig:
    """Combine a config with the keywords of ``generate``, ``chat`` or ``batch_generate``.

    Raises TypeError for an unknown keyword, `OptionError` for an invalid value.
    """
    known = ChatOptions if operation == "chat" else GenerateOptions
    return resolve(GenerateConfig, config, options, known, operation)


def resolve_template(config: GenerateConfig | None, options: TemplateOptions) -> GenerateConfig:
    """Combine a config with the keywords of ``render_chat``; raises like `resolve_generate`."""
    return resolve(GenerateConfig, config, options, TemplateOptions, "render_chat")


def resolve_classify(config: GenerateConfig | None, options: ClassifyOptions) -> GenerateConfig:
    """Combine a config with the keywords of ``classify``; raises like `resolve_generate`."""
    return resolve(GenerateConfig, config, options, ClassifyOptions, "classify")


def resolve_request(
    config: GenerateConfig | None, options: RequestOptions, operation: str
) -> GenerateConfig:
    """Combine a config with keywords of ``score``, ``hidden_states`` or ``inspect_attention``.

    Raises like `resolve_generate`.
    """
    return resolve(GenerateConfig, config, options, RequestOptions, operation)


def resolve_load(config: LoadConfig | None, options: LoadOptions) -> LoadConfig:
    """Combine a config with the keywords of ``load_model``; raises like `resolve_generate`."""
    return resolve(LoadConfig, config, options, LoadOptions, "load_model")


def resolve(kind: type[C], config: C | None, options: object, known: type, operation: str) -> C:
    """Combine a config with keywords of the type ``known``; raises like `resolve_generate`."""
    if config is None:
        config = kind()
    elif not isinstance(config, kind):
        wanted, got = kind.__name__, type(config).__name__
        raise TypeError(f"{operation}() takes a {wanted} as its config, got {got}.")

    keywords = cast("dict[str, object]", options)
    if not keywords:
        return config

    names = known.__annotations__
    for name in keywords:
        if name not in names:
            raise TypeError(_unknown_keyword(operation, name, tuple(names)))
    return dataclasses.replace(config, **keywords)  # type: ignore[arg-type]


def _unknown_keyword(operation: str, name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"{operation}() has no option {name!r}.{hint} Options: {', '.join(sorted(known))}."


def _normalise(config: object, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(config, name, value)  # frozen to users, not to its own constructor


def _stop(value: object) -> tuple[str, ...]:
    return validate.texts("stop", (value,) if isinstance(value, str) else value)


def _timeout(value: object) -> float | None:
    return None if value is None else validate.real("timeout", value, 0.0, above=True)


def _cancel(value: object) -> CancelToken | None:
    if value is not None and not isinstance(value, CancelToken):
        raise InvalidOptionError("cancel", value, "an object with is_set(), or None")
    return value


def _label_prefix(value: object) -> str:
    return validate.unicode("label_prefix", validate.text("label_prefix", value))


def _label_sentence(value: object) -> str:
    sentence = validate.unicode("label_sentence", validate.text("label_sentence", value))
    if LABEL_PLACE not in sentence:
        raise InvalidOptionError("label_sentence", value, f"a sentence with {LABEL_PLACE}")
    return sentence


F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K", bound=type)

_KINDS = {
    kind.__name__: (kind, config)
    for kind, config in (
        (RequestOptions, GenerateConfig),
        (GenerateOptions, GenerateConfig),
        (ChatOptions, GenerateConfig),
        (TemplateOptions, GenerateConfig),
        (ClassifyOptions, GenerateConfig),
        (LoadOptions, LoadConfig),
    )
}
_WIDTH = 90
_MARK = "Options, with their defaults:"


def options_named(function: F) -> F:
    """Add the options that a function takes to its docstring, and return the function."""
    doc, kind = function.__doc__, _kind(function)
    if doc and kind and _MARK not in doc:  # under -OO there is none
        margin = min(re.findall(r"\n( *)\S", doc), key=len, default="")
        paragraph = textwrap.indent(_paragraph(kind), margin)
        function.__doc__ = f"{doc.rstrip()}\n\n{paragraph}\n"
    return function


def all_options_named(cls: K) -> K:
    """Do `options_named` for every method of a class, also inherited ones; return the class."""
    for base in cls.__mro__:
        for value in vars(base).values():
            if isinstance(value, FunctionType):
                options_named(value)
    return cls


def _kind(function: Callable[..., Any]) -> str | None:
    """Return the name of the options type in the annotation of the function's keywords."""
    for annotation in function.__annotations__.values():
        match = re.search(r"Unpack\[(?:\w+\.)*(\w+)\]", str(annotation))
        if match and match[1] in _KINDS:
            return match[1]
    return None


@cache
def _paragraph(name: str) -> str:
    kind, config = _KINDS[name]
    known = [field for field in dataclasses.fields(config) if field.name in kind.__annotations__]
    options = ", ".join(f"{field.name}={_default(field)!r}" for field in known)
    text = f"{_MARK} {options}. See `core.{config.__name__}`."
    return "\n".join(textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False))


def _default(field: dataclasses.Field[Any]) -> object:
    factory = field.default_factory
    return field.default if factory is dataclasses.MISSING else factory()
