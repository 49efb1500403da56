"""Whether there is anything to look at: to a backend that gives no token, much seems to be kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast
from weakref import WeakKeyDictionary

from core.capability import Capability
from core.extensions import Submitting
from core.options import GenerateConfig
from core.protocols import TextModel, TokenStream
from core.types import Message, Token
from core_conformance import prompts
from core_conformance.model import must
from core_conformance.subject import Subject

SPEAKING = (Capability.GENERATE, Capability.CHAT, Capability.SUBMITTING)
"""The operations that give a stream."""

_HOT = {"temperature": 50.0}  # where the model ends every prompt at once, a draw still goes on
_heard: WeakKeyDictionary[Subject, set[Capability]] = WeakKeyDictionary()


def speaks(subject: Subject, operation: Capability) -> None:
    """Raise `Violation` when an operation never gives a token; asked once for a subject."""
    heard = _heard.setdefault(subject, set())
    if operation in heard:
        return
    must(
        any(
            list(_first_tokens(subject, operation, prompt, options))
            for options in ({}, _HOT)
            for prompt in prompts.PLAIN
        ),
        f"{operation} gave no token for any of {len(prompts.PLAIN)} prompts, greedy and at a very "
        "high temperature: hand out the tokens that are drawn, or there is nothing to look at",
    )
    heard.add(operation)


def voice(subject: Subject) -> Capability:
    """The operation through which streams are looked at: `SPEAKING`'s first that is declared."""
    return next((name for name in SPEAKING if subject.declares(name)), Capability.GENERATE)


def speak(subject: Subject, model: TextModel, prompt: str, **options: Any) -> TokenStream:
    """A stream of that operation: a prompt continued, or a message of these words answered."""
    return _STREAM[voice(subject)](model, prompt, options)


def _generate(model: TextModel, prompt: str, options: dict[str, Any]) -> TokenStream:
    return model.generate(prompt, **options)


def _chat(model: TextModel, prompt: str, options: dict[str, Any]) -> TokenStream:
    return model.chat([Message("user", prompt)], **options)


def _submit(model: TextModel, prompt: str, options: dict[str, Any]) -> TokenStream:
    return cast("Submitting", model).submit(prompt, GenerateConfig(**options))


_STREAM: dict[Capability, Callable[[TextModel, str, dict[str, Any]], TokenStream]] = {
    Capability.GENERATE: _generate,
    Capability.CHAT: _chat,
    Capability.SUBMITTING: _submit,
}


def _first_tokens(
    subject: Subject, operation: Capability, prompt: str, options: dict[str, Any]
) -> Iterable[Token]:
    if operation is not Capability.BATCH_GENERATE:
        return _STREAM[operation](subject.model, prompt, {"max_tokens": 2} | options)
    (row,) = subject.model.batch_generate([prompt], max_tokens=2, **options)
    return row.tokens
