"""Refusals that every backend owes its users: one table from options to capabilities.

A backend calls `refuse_options` once per request and `refuse_load_options` once per load, so
that no option is ever dropped in silence.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from core import validate
from core.errors import (
    BackendError,
    EmptyPromptError,
    InvalidOptionError,
    RequestError,
    UnsupportedOperationError,
    UnsupportedOptionError,
)
from core.extensions import Declaring
from core.messages import checked_conversation, checked_messages  # noqa: F401 - their old place
from core.options import (
    ChatOptions,
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    LoadConfig,
    RequestOptions,
    TemplateOptions,
)
from core.protocols import Backend, Capability
from core.sampling_options import SAMPLING_OPTIONS
from core.types import Choice

R = TypeVar("R")
T = TypeVar("T", covariant=True)

OPTION_NEEDS = {
    "labels": Capability.LABELS,
    "return_logits": Capability.LOGITS,
    "return_logprobs": Capability.LOGPROBS,
    "seed": Capability.SEED,
    "chat_template_kwargs": Capability.CHAT_TEMPLATE,
    "continue_final_message": Capability.CHAT_TEMPLATE,
}
REFUSABLE = frozenset(option.name for option in SAMPLING_OPTIONS).difference(OPTION_NEEDS)
"""Options that no capability stands for: a backend that cannot honour one refuses it by name."""
NEWER = frozenset(option.name for option in SAMPLING_OPTIONS if option.since > 1)
"""Those of them that came after version 1 of the contract."""

ASKED = "asked for"
"""The reason of a choice that the user made."""

CLASSIFYING = frozenset({Capability.CLASSIFY, Capability.CLASSIFY_STREAMING})
_KEYWORDS: Mapping[Capability, type] = {
    **dict.fromkeys(CLASSIFYING, ClassifyOptions),
    Capability.CHAT: ChatOptions,
    Capability.TOKENIZING: TemplateOptions,
    Capability.SCORING: RequestOptions,
    Capability.HIDDEN_STATES: RequestOptions,
    Capability.ATTENTION_INSPECTOR: RequestOptions,
}
"""The keywords of each operation; of any other, `GenerateOptions`."""


def refuse_options(
    config: GenerateConfig,
    operation: Capability,
    backend: str,
    capabilities: Collection[Capability],
    unsupported: Collection[str] = (),
    *,
    honours: Collection[str] | None = None,
) -> None:
    """Raise `UnsupportedOptionError` for the first option that the backend cannot honour.

    Of the options that no capability stands for (`REFUSABLE`), those in ``honours`` alone are let
    through, so that a backend refuses what is added after it was written. Version 1 of the contract
    named the others, in ``unsupported``: what came after it is refused there, too. Fields that
    belong to other operations do not apply and are not looked at.
    """
    later = NEWER if honours is None else REFUSABLE.difference(honours)
    unsupported = {*unsupported, *later}
    known = _KEYWORDS.get(operation, GenerateOptions)
    for field in dataclasses.fields(config):
        name = field.name
        if name not in known.__annotations__ or getattr(config, name) == field.default:
            continue
        need = OPTION_NEEDS.get(name)
        if name in unsupported or (need is not None and need not in capabilities):
            raise _unsupported_option(name, backend, need)


def refuse_load_options(
    config: LoadConfig,
    backend: str,
    capabilities: Collection[Capability],
    own: Collection[str] = (),
) -> None:
    """Raise for a load option that the backend cannot honour; ``own`` lists its ``options``."""
    if config.adapter_path is not None and Capability.ADAPTERS not in capabilities:
        raise _unsupported_option("adapter_path", backend, Capability.ADAPTERS)
    if config.context_overflow == "rotate" and Capability.ROTATE not in capabilities:
        raise _unsupported_option("context_overflow", backend, Capability.ROTATE)
    if config.parallel_slots > 1 and Capability.PARALLEL not in capabilities:
        raise _unsupported_option("parallel_slots", backend, Capability.PARALLEL)

    # One that another backend has, or a misspelt one.
    for name in config.options:
        if name not in own:
            known = ", ".join(sorted(own)) or "none"
            raise InvalidOptionError("options", name, f"one of {backend}'s own options ({known})")


def unsupported(
    operation: Capability, backend: str, refusals: Sequence[tuple[str, str]] = ()
) -> UnsupportedOperationError:
    """The refusal of an operation, naming the backends that offer it here.

    ``refusals``: backends that do not load this model, with their reasons.
    """
    offering, reasons = _offering(operation, backend), dict(refusals)
    others = [name for name in offering if name not in reasons]
    refused = [(name, reasons[name]) for name in offering if name in reasons]
    return UnsupportedOperationError(operation.value, backend, others, refused)


def unsupported_method(operation: str, model: object) -> UnsupportedOperationError:
    """The refusal of a method that a model has not: one of an optional protocol."""
    backend = str(getattr(model, "_backend", "") or type(model).__name__)
    return UnsupportedOperationError(operation, backend)


def _unsupported_option(
    option: str, backend: str, need: Capability | None
) -> UnsupportedOptionError:
    # A backend that honours it with other models is not an alternative to itself.
    others = [name for name in _offering(need, backend) if name != backend] if need else []
    advice = f"Leave {option} at its default, or use backend {others[0]!r}." if others else ""
    return UnsupportedOptionError(option, backend, advice)


def _offering(capability: Capability, instead: str) -> tuple[str, ...]:
    """The backends that run here, read what another one reads, and declare what that one lacks."""
    from core.registry import REGISTRY  # not needed, and not loaded, unless something is refused

    try:
        formats = REGISTRY.get(instead).formats
    except BackendError:  # not registered, as within a test
        formats = None
    return REGISTRY.offering(capability, formats)


def offered(model: object, backend: Backend) -> frozenset[Capability]:
    """What a loaded model offers: what it says itself where it does, else what its backend says."""
    return model.declared() if isinstance(model, Declaring) else backend.capabilities


def checked_stream(operation: str, prompts: object) -> Iterable[Any]:
    """The prompts, not looked at yet. Raises TypeError for one string, or for no iterable."""
    if isinstance(prompts, str | bytes) or not isinstance(prompts, Iterable):
        raise TypeError(f"{operation}() takes a sequence of prompts; wrap a single one in a list.")
    return prompts


def checked_prompts(operation: str, prompts: object, first: int = 0) -> list[str]:
    """The prompts as a list, numbered from ``first``. Raises TypeError for what is no text."""
    rows = list(checked_stream(operation, prompts))
    wrong = next((i for i, row in enumerate(rows) if not isinstance(row, str)), None)
    if wrong is not None:
        value = rows[wrong]
        kind = type(value).__name__
        # What a column of a table holds where a text is missing.
        missing = value is None or (isinstance(value, float) and math.isnan(value))
        advice = " Leave rows without a text out." if missing else ""
        raise TypeError(
            f"{operation}() takes strings as prompts; prompt {first + wrong} is a {kind}.{advice}"
        )
    return rows


def checked_text(operation: str, text: object) -> str:
    """The text. Raises TypeError for anything else."""
    if not isinstance(text, str):
        raise TypeError(f"{operation}() takes a string, not a {type(text).__name__}.")
    return text


def checked_pairs(
    operation: str, prompts: object, continuations: object
) -> tuple[list[str], list[str]]:
    """Prompts and a continuation for each. Raises TypeError."""
    heads, tails = checked_prompts(operation, prompts), checked_prompts(operation, continuations)
    if len(heads) != len(tails):
        raise TypeError(
            f"{operation}() takes one continuation per prompt, got {len(tails)} for {len(heads)}."
        )
    return heads, tails


def checked_layers(layers: object, num_layers: int) -> tuple[int, ...]:
    """The layers that ``hidden_states`` was asked for, as numbers from 0 to ``num_layers``.

    Raises `InvalidOptionError`: one layer at least, each once, and only those that there are.
    """
    if isinstance(layers, str | bytes) or not isinstance(layers, Iterable):
        raise InvalidOptionError("layers", layers, "a sequence of layer numbers, (-1,) say")
    numbers = [validate.integer("layers", each, -1 - num_layers, num_layers) for each in layers]
    found = tuple(number % (num_layers + 1) for number in numbers)
    if not found or len(set(found)) < len(found):
        raise InvalidOptionError("layers", numbers, "at least one layer, and each of them once")
    return found


def text_error(text: str, name: str = "prompt") -> RequestError | None:
    """What keeps a prompt, or what ``name`` calls it, from being tokenised."""
    if not text:
        return EmptyPromptError(f"The {name} is empty. Give it at least one character.")
    return unicode_error(text, name)


def blank_error(
    text: str, allowing: str = "allow_blank=True", name: str = "The text"
) -> EmptyPromptError | None:
    """Return the error of a row whose text is empty or white space; None for any other text.

    A label of such a row would be the model's prior. ``allowing`` is what asks it all the same.
    """
    if text.strip():
        return None
    return EmptyPromptError(f"{name} is blank. Leave it out, or ask it all the same: {allowing}.")


def without_blank(
    ask: Callable[[Sequence[str]], Sequence[R]], failed: Callable[[Exception], R]
) -> Callable[[Sequence[str]], list[R]]:
    """Return ``ask`` for texts of which the blank ones get a result that ``failed`` makes."""

    def asked(texts: Sequence[str]) -> list[R]:
        errors = [blank_error(text) for text in texts]
        kept = [text for text, error in zip(texts, errors, strict=True) if error is None]
        results = iter(ask(kept) if kept else ())
        return [next(results) if error is None else failed(error) for error in errors]

    return asked


def unicode_error(text: str, name: str = "prompt") -> RequestError | None:
    """The error of a text with lone surrogates, which has no UTF-8 form; None for a sound one.

    ``name`` is what its message calls the text.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return RequestError(
            f"The {name} is not valid Unicode text: a lone surrogate stands at character "
            f"{error.start}. Decode its source as UTF-8."
        )
    return None


def block_sizes(first: int, largest: int) -> Iterator[int]:
    """How many prompts of a stream run together, block by block: each time twice as many.

    So the first answers come soon, and later prompts share more.
    """
    size = first
    while True:
        yield size
        size = min(2 * size, largest)


@dataclasses.dataclass(frozen=True, slots=True)
class Chosen(Generic[T]):
    """The value of an option, as the program uses it, and why it was chosen."""

    name: str
    value: T
    reason: str

    @property
    def choice(self) -> Choice:
        """As it is shown to a user."""
        return Choice(self.name, str(self.value), self.reason)


def asked_integer(
    config: LoadConfig, name: str, low: int, high: int | None = None
) -> Chosen[int] | None:
    """What the user gave as this one of the backend's own options; None for nothing.

    Raises `core.InvalidOptionError` for what is no integer from ``low`` to ``high``.
    """
    asked = config.options.get(name)
    if asked is None:
        return None
    return Chosen(name, validate.integer(name, asked, low, high), ASKED)


def chosen_backend(name: str, config: LoadConfig) -> Choice:
    """The first of a model's choices: this backend, and why."""
    by_default = "the first, in core's order, that runs here and takes this model"
    return Choice("backend", name, "asked for by name" if config.backend else by_default)
