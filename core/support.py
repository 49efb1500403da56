"""Refusals that every backend owes its users: one table from options to capabilities.

A backend calls `refuse_options` once per request and `refuse_load_options` once per load, so
that no option is ever dropped in silence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any, get_args

from core import validate
from core.capability import Capability
from core.errors import (
    ChatTemplateError,
    InvalidOptionError,
    RequestError,
    UnsupportedOperationError,
    UnsupportedOptionError,
)
from core.options import ClassifyOptions, GenerateConfig, GenerateOptions, LoadConfig
from core.types import Choice, Message, Role

OPTION_NEEDS = {
    "labels": Capability.LABELS,
    "return_logits": Capability.LOGITS,
    "return_logprobs": Capability.LOGPROBS,
    "seed": Capability.SEED,
}

CLASSIFYING = frozenset({Capability.CLASSIFY, Capability.CLASSIFY_STREAMING})


def refuse_options(
    config: GenerateConfig,
    operation: Capability,
    backend: str,
    capabilities: Collection[Capability],
    unsupported: Collection[str] = (),
) -> None:
    """Raise `UnsupportedOptionError` for the first option that the backend cannot honour.

    ``unsupported`` names options that no capability stands for. Fields that belong to other
    operations do not apply and are not looked at.
    """
    known = ClassifyOptions if operation in CLASSIFYING else GenerateOptions
    for field in dataclasses.fields(config):
        name = field.name
        if name not in known.__annotations__ or getattr(config, name) == field.default:
            continue
        need = OPTION_NEEDS.get(name)
        if name in unsupported or (need is not None and need not in capabilities):
            raise UnsupportedOptionError(name, backend)


def refuse_load_options(
    config: LoadConfig,
    backend: str,
    capabilities: Collection[Capability],
    own: Collection[str] = (),
) -> None:
    """Raise for a load option that the backend cannot honour; ``own`` lists its ``options``."""
    if config.adapter_path is not None and Capability.ADAPTERS not in capabilities:
        raise UnsupportedOptionError("adapter_path", backend)
    if config.context_overflow == "rotate" and Capability.ROTATE not in capabilities:
        raise UnsupportedOptionError("context_overflow", backend)
    if config.parallel_slots > 1 and Capability.PARALLEL not in capabilities:
        raise UnsupportedOptionError("parallel_slots", backend)
    for name in config.options:
        if name not in own:
            known = ", ".join(sorted(own)) or "none"
            raise InvalidOptionError("options", name, f"one of {backend}'s own options ({known})")


def unsupported(operation: Capability, backend: str) -> UnsupportedOperationError:
    """The refusal of an operation, naming the installed backends that offer it."""
    from core.registry import REGISTRY  # not needed, and not loaded, unless something is refused

    return UnsupportedOperationError(operation.value, backend, REGISTRY.offering(operation))


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
        kind = type(rows[wrong]).__name__
        raise TypeError(
            f"{operation}() takes strings as prompts; prompt {first + wrong} is a {kind}."
        )
    return rows


def checked_messages(messages: object) -> list[Message]:
    """The messages as a list. Raises TypeError for anything that is not a `Message` of text."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise TypeError("A conversation is a sequence of core.Message(role, content).")
    turns = list(messages)
    for index, turn in enumerate(turns):
        if not isinstance(turn, Message) or not isinstance(turn.content, str):
            kind = type(turn).__name__
            raise TypeError(f"Message {index} is a {kind}, not a core.Message with text content.")
    return turns


def checked_conversation(messages: object) -> list[Message]:
    """The messages of a chat, of which there is one at least, each of a known role.

    Raises TypeError like `checked_messages`, `ChatTemplateError`, `InvalidOptionError`.
    """
    turns = checked_messages(messages)
    if not turns:
        raise ChatTemplateError("There are no messages to render. Give at least one.")
    for turn in turns:
        validate.one_of("role", turn.role, get_args(Role))
    return turns


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


def unicode_error(text: str, name: str = "prompt") -> RequestError | None:
    """What keeps a text, or what ``name`` calls it, from having a UTF-8 form: lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return RequestError(
            f"The {name} is not valid Unicode text: a lone surrogate stands at character "
            f"{error.start}. Decode its source as UTF-8."
        )
    return None


def chosen_backend(name: str, config: LoadConfig) -> Choice:
    """The first of a model's choices: this backend, and why."""
    by_default = "the first, in core's order, that runs here and takes this model"
    return Choice("backend", name, "asked for by name" if config.backend else by_default)
