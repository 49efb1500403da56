"""Whether there is anything to look at: to a backend that gives no token, much seems to be kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast
from weakref import WeakKeyDictionary

from core.capability import Capability
from core.extensions import Submitting
from core.options import GenerateConfig
from core.types import Message, Token
from core_conformance import prompts
from core_conformance.model import must
from core_conformance.subject import Subject

_HOT = {"temperature": 50.0}  # where the model ends every prompt at once, a draw still goes on
_heard: WeakKeyDictionary[Subject, set[Capability]] = WeakKeyDictionary()


def speaks(subject: Subject, operation: Capability) -> None:
    """Raise `Violation` when an operation never gives a token; asked once for a subject."""
    heard = _heard.setdefault(subject, set())
    if operation in heard:
        return
    ask = _ASK[operation]
    must(
        any(
            list(ask(subject, prompt, options))
            for options in ({}, _HOT)
            for prompt in prompts.PLAIN
        ),
        f"{operation} gave no token for any of {len(prompts.PLAIN)} prompts, greedy and at a very "
        "high temperature: hand out the tokens that are drawn, or there is nothing to look at",
    )
    heard.add(operation)


def _generate(subject: Subject, prompt: str, options: dict[str, Any]) -> Iterable[Token]:
    return subject.model.generate(prompt, max_tokens=2, **options)


def _chat(subject: Subject, prompt: str, options: dict[str, Any]) -> Iterable[Token]:
    return subject.model.chat([Message("user", prompt)], max_tokens=2, **options)


def _batch(subject: Subject, prompt: str, options: dict[str, Any]) -> Iterable[Token]:
    (row,) = subject.model.batch_generate([prompt], max_tokens=2, **options)
    return row.tokens


def _submit(subject: Subject, prompt: str, options: dict[str, Any]) -> Iterable[Token]:
    model = cast("Submitting", subject.model)
    return model.submit(prompt, GenerateConfig(max_tokens=2, **options))


_ASK: dict[Capability, Callable[[Subject, str, dict[str, Any]], Iterable[Token]]] = {
    Capability.GENERATE: _generate,
    Capability.CHAT: _chat,
    Capability.BATCH_GENERATE: _batch,
    Capability.SUBMITTING: _submit,
}
