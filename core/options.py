"""Options of calls and of loads: their defaults, their ranges, and how keywords join a config.

Every entry point takes a config object, keywords, or both; keywords win. The TypedDicts below
say which keywords an operation knows, for type checkers and at run time alike.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypedDict, TypeVar, cast, runtime_checkable

from core import validate
from core.errors import InvalidOptionError, LabelError
from core.sampling_options import SAMPLING_OPTIONS
from core.secret import Secret, checked_keys

ContextOverflow = Literal["stop", "rotate"]
_OVERFLOWS = ("stop", "rotate")
_TEMPLATE_OWN = ("messages", "add_generation_prompt")
C = TypeVar("C", "GenerateConfig", "LoadConfig")


@runtime_checkable
class CancelToken(Protocol):
    """Anything that can say whether it was set: ``threading.Event`` is one."""

    def is_set(self) -> bool:
        """True once the request should stop."""
        ...


class RequestOptions(TypedDict, total=False):
    """Keywords that every operation knows, and all of ``score`` and the like."""

    cancel: CancelToken | None
    timeout: float | None


class SamplingOptions(RequestOptions, total=False):
    """Keywords that every operation which draws a token knows."""

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
    """Keywords of ``render_chat``, which ``chat`` takes as well."""

    chat_template_kwargs: Mapping[str, object] | None
    continue_final_message: bool


class ChatOptions(GenerateOptions, TemplateOptions, total=False):
    """Keywords of ``chat``."""


class ClassifyOptions(SamplingOptions, total=False):
    """Keywords of ``classify``."""

    return_logits: bool
    labels: tuple[str, ...] | list[str]
    label_prefix: str
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
    """Options of one request. A wrong value raises `InvalidOptionError` here, by name.

    ``max_tokens`` are generated at most. The answer ends in front of any of the texts in ``stop``
    and of the token ids in ``stop_tokens``. ``seed`` makes draws repeatable. With
    ``return_logprobs`` a token has its log-probability, with ``return_logits`` a result of
    ``classify`` its logits. ``labels`` are what ``classify`` chooses from, each after
    the prompt and ``label_prefix``; white space of that is left out where the text takes none
    (`core.joining`). ``cancel`` is anything with ``is_set()``, an event say;
    ``timeout`` is in seconds, for the whole call.

    ``temperature=0`` is greedy, whatever the filters say; ``top_k=0``, ``typical_p=1``,
    ``top_p=1``, ``min_p=0`` and ``repeat_penalty=1`` are off. The order is repeat penalty,
    typical_p, top_p, min_p, top_k, temperature, draw, and the filters look at the distribution at
    temperature 1. ``typical_p`` keeps the smallest set of tokens, those first whose surprisal is
    nearest to the entropy, with a probability above it: one at least, and perhaps not the best.
    To the other filters, what it drops is impossible.

    ``chat_template_kwargs`` are variables for the chat template by name, such as
    ``{"enable_thinking": False}``, with values that JSON has. With ``continue_final_message`` the
    last message, an assistant's, is continued, and no new turn begins.

    With ``labels_only`` only ``label`` is wanted, and ``token``, ``logprobs`` and ``label_mass``
    may stay None. ``probabilities`` and ``margin`` are given where each label is one token after
    the prompt; where labels have several they may be None, because the search stops once no label
    that was not read can win. ``return_logits`` and ``return_logprobs`` want everything again. A
    config may carry fields that an operation does not use.
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
    labels_only: bool = False
    cancel: CancelToken | None = None
    timeout: float | None = None
    chat_template_kwargs: Mapping[str, object] | None = field(default=None, hash=False)
    continue_final_message: bool = False

    def __post_init__(self) -> None:
        _normalise(
            self,
            max_tokens=validate.integer("max_tokens", self.max_tokens, 1),
            **{each.name: each.checked(getattr(self, each.name)) for each in SAMPLING_OPTIONS},
            stop=_stop(self.stop),
            stop_tokens=validate.integers("stop_tokens", self.stop_tokens, 0),
            return_logprobs=validate.flag("return_logprobs", self.return_logprobs),
            return_logits=validate.flag("return_logits", self.return_logits),
            labels=_labels(self.labels),
            label_prefix=_label_prefix(self.label_prefix),
            labels_only=validate.flag("labels_only", self.labels_only),
            cancel=_cancel(self.cancel),
            timeout=_timeout(self.timeout),
            chat_template_kwargs=_template_variables(self.chat_template_kwargs),
            continue_final_message=validate.flag(
                "continue_final_message", self.continue_final_message
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadConfig:
    """Options of a load.

    ``backend`` is one by name; without it, the best of this machine is taken. ``adapter_path`` is
    that of a LoRA adapter. ``context_len=0`` is the model's own, ``gpu_layers=-1`` is all layers.

    With ``context_overflow="rotate"`` a generation that fills the context goes on, and the oldest
    positions are dropped; a prompt longer than the context is refused all the same.
    ``parallel_slots=0`` is the backend's default. ``options`` are a backend's own, by name; a
    secret among them, ``api_key`` say, becomes a `core.Secret`.
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
            adapter_path=_path("adapter_path", self.adapter_path),
            options=_named_options(self.options),
        )


def resolve_generate(
    config: GenerateConfig | None,
    options: GenerateOptions | ChatOptions,
    operation: str = "generate",
) -> GenerateConfig:
    """Join a config with the keywords of ``generate``, ``chat`` or ``batch_generate``.

    Raises TypeError for a keyword that the operation does not know, `OptionError` for a value.
    """
    known = ChatOptions if operation == "chat" else GenerateOptions
    return _resolve(GenerateConfig, config, options, known, operation)


def resolve_template(config: GenerateConfig | None, options: TemplateOptions) -> GenerateConfig:
    """Join a config with the keywords of ``render_chat``; raises like `resolve_generate`."""
    return _resolve(GenerateConfig, config, options, TemplateOptions, "render_chat")


def resolve_classify(config: GenerateConfig | None, options: ClassifyOptions) -> GenerateConfig:
    """Join a config with the keywords of ``classify``; raises like `resolve_generate`."""
    return _resolve(GenerateConfig, config, options, ClassifyOptions, "classify")


def resolve_request(
    config: GenerateConfig | None, options: RequestOptions, operation: str
) -> GenerateConfig:
    """Join a config with the keywords of ``score``, ``hidden_states`` or ``inspect_attention``.

    Raises like `resolve_generate`.
    """
    return _resolve(GenerateConfig, config, options, RequestOptions, operation)


def resolve_load(config: LoadConfig | None, options: LoadOptions) -> LoadConfig:
    """Join a config with the keywords of ``load_model``; raises like `resolve_generate`."""
    return _resolve(LoadConfig, config, options, LoadOptions, "load_model")


def _resolve(kind: type[C], config: C | None, options: object, known: type, operation: str) -> C:
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
    return f"{operation}() has no option {name!r}.{hint} It knows: {', '.join(sorted(known))}."


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


def _labels(value: object) -> tuple[str, ...]:
    labels = validate.texts("labels", value)
    seen: set[str] = set()
    for label in labels:
        validate.unicode("labels", label)
        if label in seen:
            raise LabelError(f"labels holds {label!r} more than once. Give each label once.")
        seen.add(label)
    return labels


def _label_prefix(value: object) -> str:
    return validate.unicode("label_prefix", validate.text("label_prefix", value))


def _path(option: str, value: object) -> str | os.PathLike[str] | None:
    if value is not None and not isinstance(value, str | os.PathLike):
        raise InvalidOptionError(option, value, "a path, or None")
    return value


def _template_variables(value: object) -> dict[str, object] | None:
    """Return a copy of the variables; None for none."""
    expected = "variables of the chat template by name, with values that JSON has, or None"
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidOptionError("chat_template_kwargs", value, expected)
    for name in value:
        if name in _TEMPLATE_OWN:
            raise InvalidOptionError(
                "chat_template_kwargs", value, f"variables other than {name}, which chat() sets"
            )
    import json  # 1.5 ms that `import core` does without

    try:
        copied = json.loads(json.dumps(dict(value), allow_nan=False, ensure_ascii=False).encode())
    except (TypeError, ValueError, RecursionError):
        raise InvalidOptionError("chat_template_kwargs", value, expected) from None
    return cast("dict[str, object]", copied) or None


def _named_options(value: object) -> dict[str, object]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidOptionError("options", Secret(value), "a mapping of option names to values")
    return checked_keys(value)
