"""Checks of options for backends: one table from options to capabilities.

A backend calls `refuse_options` once per request and `refuse_load_options` once per load, so
that no option is ever silently ignored.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from core import extensions, validate
from core.errors import (
    BackendError,
    EmptyPromptError,
    InvalidOptionError,
    RequestError,
    UnsupportedOperationError,
    UnsupportedOptionError,
)
from core.extensions import Declaring
from core.kit.operations import OPERATIONS
from core.options import GenerateConfig, GenerateOptions, LoadConfig
from core.protocols import Backend, Capability
from core.sampling_options import SAMPLING_OPTIONS
from core.types import Choice

R = TypeVar("R")
T = TypeVar("T", covariant=True)

OPTION_NEEDS = {
    "labels": Capability.LABELS,
    "label_sentence": Capability.LABEL_SENTENCES,
    "return_logits": Capability.LOGITS,
    "return_logprobs": Capability.LOGPROBS,
    "seed": Capability.SEED,
    "chat_template_kwargs": Capability.CHAT_TEMPLATE,
    "continue_final_message": Capability.CHAT_TEMPLATE,
}
REFUSABLE = frozenset(option.name for option in SAMPLING_OPTIONS).difference(OPTION_NEEDS)
"""Options without a capability: a backend that does not support one rejects it by name."""

PROTOCOLS: Mapping[Capability, type] = {
    capability: vars(extensions)[name]
    for capability in Capability
    if (name := capability.value.title().replace("_", "")) in vars(extensions)
}
"""The protocol of each capability that is named after one."""

ASKED = "asked for"
"""The reason for a setting that the user chose."""

CLASSIFYING = frozenset({Capability.CLASSIFY, Capability.CLASSIFY_STREAMING})
# By capability; if several operations have one, those of the first.
_KEYWORDS = dict(reversed(list(OPERATIONS.values())))


def refuse_options(
    config: GenerateConfig,
    operation: Capability,
    backend: str,
    capabilities: Collection[Capability],
    *,
    honours: Collection[str] = (),
) -> None:
    """Raise `UnsupportedOptionError` for the first option that the backend does not support.

    Of the options without a capability (`REFUSABLE`), only those in ``honours`` are accepted, so
    that a backend rejects options that are added after it was written. Fields that belong to other
    operations are ignored. With `Capability.LABEL_SENTENCES`, `UnsupportedOperationError` is raised
    for a classify call without labels.
    """
    sentences = Capability.LABEL_SENTENCES in capabilities
    if operation in CLASSIFYING and sentences and Capability.CLASSIFY not in capabilities:
        _refuse_continuations(config, backend)
    unsupported = REFUSABLE.difference(honours)
    known = _KEYWORDS.get(operation, GenerateOptions)
    for field in dataclasses.fields(config):
        name = field.name
        if name not in known.__annotations__ or getattr(config, name) == field.default:
            continue
        need = OPTION_NEEDS.get(name)
        if name in unsupported or (need is not None and need not in capabilities):
            raise _unsupported_option(name, backend, need)


def _refuse_continuations(config: GenerateConfig, backend: str) -> None:
    """Raise for what only a model has that continues its prompt, unlike one of label sentences."""
    if not config.labels:
        raise UnsupportedOperationError(
            "classify without labels",
            backend,
            advice="Pass labels: this model compares each text with their sentences.",
        )
    if config.label_prefix != GenerateConfig().label_prefix:
        raise UnsupportedOptionError(
            "label_prefix", backend, "Labels follow no prompt here; set label_sentence instead."
        )


def load_needs(config: LoadConfig) -> dict[str, Capability]:
    """Return the capabilities that a load needs, by the options that need them."""
    needs = {
        "adapter_path": (Capability.ADAPTERS, config.adapter_path is not None),
        "context_overflow": (Capability.ROTATE, config.context_overflow == "rotate"),
        "parallel_slots": (Capability.PARALLEL, config.parallel_slots > 1),
    }
    return {name: need for name, (need, given) in needs.items() if given}


def refuse_load_options(
    config: LoadConfig,
    backend: str,
    capabilities: Collection[Capability],
    own: Collection[str] = (),
) -> None:
    """Raise for a load option that the backend does not support; ``own`` lists its ``options``."""
    for name, need in load_needs(config).items():
        if need not in capabilities:
            raise _unsupported_option(name, backend, need)

    # An option of another backend, or a misspelt one.
    for name in config.options:
        if name not in own:
            known = ", ".join(sorted(own)) or "none"
            raise InvalidOptionError("options", name, f"one of the options of {backend} ({known})")


def unsupported(
    operation: Capability, backend: str, location: str = ""
) -> UnsupportedOperationError:
    """Return the error of an unsupported operation, which names available backends that support it.

    The backends that cannot load the model at ``location`` are named with their reasons.
    """
    from core.choosing import refusal
    from core.registry import REGISTRY  # not needed, and not loaded, unless something is refused

    offering = _offering(operation, backend)
    probed = offering if location else ()
    reasons = {name: refusal(REGISTRY.get(name), location) for name in probed}
    refused = [(name, reason) for name, reason in reasons.items() if reason is not None]
    others = [name for name in offering if reasons.get(name) is None]
    return UnsupportedOperationError(operation.value, backend, others, refused)


def unsupported_method(operation: str, model: object) -> UnsupportedOperationError:
    """Return the error of a method that a model lacks: one of an optional protocol."""
    backend = str(getattr(model, "_backend", "") or type(model).__name__)
    return UnsupportedOperationError(operation, backend)


def _unsupported_option(
    option: str, backend: str, need: Capability | None
) -> UnsupportedOptionError:
    # A backend that supports it for other models is not an alternative to itself.
    others = [name for name in _offering(need, backend) if name != backend] if need else []
    advice = f"Leave {option} at its default, or use backend {others[0]!r}." if others else ""
    return UnsupportedOptionError(option, backend, advice)


def _offering(capability: Capability, instead: str) -> tuple[str, ...]:
    """Return the backends that run here, read what another one reads, and declare what that one
    lacks.
    """
    from core.registry import REGISTRY  # not needed, and not loaded, unless something is refused

    try:
        formats = REGISTRY.get(instead).formats
    except BackendError:  # not registered, as within a test
        formats = None
    return REGISTRY.offering(capability, formats)


def compares_sentences(model: object) -> bool:
    """Return True for a model that scores label sentences; such a model is `Declaring`."""
    return isinstance(model, Declaring) and Capability.LABEL_SENTENCES in model.declared()


def offered(model: object, backend: Backend) -> frozenset[Capability]:
    """Return the capabilities of a loaded model: its own if it declares them, or its backend's."""
    return model.declared() if isinstance(model, Declaring) else backend.capabilities


def checked_stream(operation: str, prompts: object) -> Iterable[Any]:
    """Return the prompts, without checking them.

    Raises TypeError for one string, or if they are not an iterable.
    """
    if isinstance(prompts, str | bytes) or not isinstance(prompts, Iterable):
        raise TypeError(f"{operation}() takes a sequence of prompts; wrap a single one in a list.")
    return prompts


def checked_prompts(operation: str, prompts: object, first: int = 0) -> list[str]:
    """Return the prompts as a list, numbered from ``first``.

    Raises TypeError for a prompt that is not a string.
    """
    rows = list(checked_stream(operation, prompts))
    wrong = next((i for i, row in enumerate(rows) if not isinstance(row, str)), None)
    if wrong is not None:
        value = rows[wrong]
        kind = type(value).__name__
        # Missing texts in a column of a table are None or NaN.
        missing = value is None or (isinstance(value, float) and math.isnan(value))
        advice = " Remove the rows without a text." if missing else ""
        raise TypeError(
            f"{operation}() takes strings as prompts; prompt {first + wrong} is a {kind}.{advice}"
        )
    return rows


def checked_text(operation: str, text: object) -> str:
    """Return the text. Raises TypeError for anything else."""
    if not isinstance(text, str):
        raise TypeError(f"{operation}() takes a string, not a {type(text).__name__}.")
    return text


def checked_pairs(
    operation: str, prompts: object, continuations: object
) -> tuple[list[str], list[str]]:
    """Return the prompts, and a continuation for each. Raises TypeError."""
    heads, tails = checked_prompts(operation, prompts), checked_prompts(operation, continuations)
    if len(heads) != len(tails):
        raise TypeError(
            f"{operation}() takes one continuation per prompt, got {len(tails)} for {len(heads)}."
        )
    return heads, tails


def checked_layers(layers: object, num_layers: int) -> tuple[int, ...]:
    """Return the layers requested from ``hidden_states``, as numbers from 0 to ``num_layers``.

    Raises `InvalidOptionError` unless there is at least one, each exists, and none is repeated.
    """
    if isinstance(layers, str | bytes) or not isinstance(layers, Iterable):
        raise InvalidOptionError("layers", layers, "a sequence of layer numbers such as (-1,)")
    numbers = [validate.integer("layers", layer, -1 - num_layers, num_layers) for layer in layers]
    chosen = tuple(number % (num_layers + 1) for number in numbers)
    if not chosen or len(set(chosen)) < len(chosen):
        raise InvalidOptionError("layers", numbers, "at least one layer, and each of them once")
    return chosen


def text_error(text: str, name: str = "prompt") -> RequestError | None:
    """Return the error of a text that cannot be tokenised, or None; ``name`` says what it is."""
    if not text:
        return EmptyPromptError(f"The {name} is empty. Pass at least one character.")
    return unicode_error(text, name)


def blank_error(
    text: str, allowing: str = "allow_blank=True", name: str = "The text"
) -> EmptyPromptError | None:
    """Return the error of a row whose text is empty or white space; None for any other text.

    The label of such a row would be the model's prior. ``allowing`` is how to allow such texts.
    """
    if text.strip():
        return None
    return EmptyPromptError(f"{name} is blank. Remove it, or allow blank texts: {allowing}.")


def without_blank(
    ask: Callable[[Sequence[str]], Sequence[R]], failed: Callable[[Exception], R]
) -> Callable[[Sequence[str]], list[R]]:
    """Return a wrapper of ``ask`` that gives blank texts a result from ``failed``."""

    def asked(texts: Sequence[str]) -> list[R]:
        errors = [blank_error(text) for text in texts]
        filled = [text for text, error in zip(texts, errors, strict=True) if error is None]
        results = iter(ask(filled) if filled else ())
        return [next(results) if error is None else failed(error) for error in errors]

    return asked


def unicode_error(text: str, name: str = "prompt") -> RequestError | None:
    """Return the error of a text with lone surrogates, which has no UTF-8 form, or None.

    ``name`` says in the message what the text is.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return RequestError(
            f"The {name} is not valid Unicode text: it has a lone surrogate at character "
            f"{error.start}. Decode its source as UTF-8."
        )
    return None


def block_sizes(first: int, largest: int) -> Iterator[int]:
    """Yield the sizes of the blocks in which the prompts of a stream run, doubling each time.

    So the first answers arrive soon, and later blocks share more work.
    """
    size = first
    while True:
        yield size
        size = min(2 * size, largest)


@dataclasses.dataclass(frozen=True, slots=True)
class Chosen(Generic[T]):
    """The value of an option that is in use, and the reason for it."""

    name: str
    value: T
    reason: str

    @property
    def choice(self) -> Choice:
        """The setting as users see it."""
        return Choice(self.name, str(self.value), self.reason)


def asked_integer(
    config: LoadConfig, name: str, low: int, high: int | None = None
) -> Chosen[int] | None:
    """Return the user's value for this backend-specific option, or None.

    Raises `core.InvalidOptionError` for anything but an integer from ``low`` to ``high``.
    """
    requested = config.options.get(name)
    if requested is None:
        return None
    return Chosen(name, validate.integer(name, requested, low, high), ASKED)


def chosen_backend(name: str, config: LoadConfig) -> Choice:
    """Return the first of a model's choices: the backend, and the reason for it."""
    by_default = "the first, in core's order, that runs here and supports this model"
    return Choice("backend", name, "asked for by name" if config.backend else by_default)
