"""Preconditions of a check, and what is checked instead if it does not apply.

A model must have what the check compares. A backend must refuse undeclared operations at the
call: the other half of every optional clause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from core.errors import (
    ChatTemplateError,
    CoreError,
    UnsupportedOperationError,
    UnsupportedOptionError,
)
from core.kit.support import PROTOCOLS, REFUSABLE
from core.options import GenerateConfig
from core.protocols import Capability
from core.sampling_options import SAMPLING_OPTIONS
from core.types import Message
from core_conformance.checking.ask import SPEAKING, speaks, submitting, voice
from core_conformance.checking.check import Check, must, testable, well_formed
from core_conformance.checking.subject import Subject

CONTEXT = 128
"""Tokens that a context has to hold: the longest prompt of any check, a byte a token, and more."""

_WITHOUT_PROMPTS = ("identity", "loading", "tokenizing")  # areas whose checks run no prompt
_SILENT = (
    "with greedy decoding the model ends at once after every prompt tried, so there is nothing to "
    "compare: use a model that continues for a dozen tokens"
)
_NO_TEMPLATE = (
    "the model has no chat template (chat raises ChatTemplateError): use a model that has one"
)
_templates: WeakKeyDictionary[Subject, bool] = WeakKeyDictionary()
_PROMPT = "The weather today is"
_CHAT = (Message("user", "Hello"),)

OF_BACKENDS = {Capability.MODEL_PROBE, Capability.MODEL_FINDING, Capability.DEVICE_REPORTING}
"""The capabilities whose protocol a backend implements; a model implements the others."""

_OPERATIONS: dict[Capability, Callable[[Subject], object]] = {
    Capability.GENERATE: lambda subject: subject.model.generate(_PROMPT),
    Capability.CHAT: lambda subject: subject.model.chat(_CHAT),
    Capability.CLASSIFY: lambda subject: subject.model.classify([_PROMPT], labels=()),
    Capability.BATCH_GENERATE: lambda subject: subject.model.batch_generate([_PROMPT]),
}
_LOAD_OPTIONS: dict[Capability, tuple[str, Any]] = {
    Capability.PARALLEL: ("parallel_slots", 2),
    Capability.ROTATE: ("context_overflow", "rotate"),
    Capability.ADAPTERS: ("adapter_path", "adapter"),
}
_CLASSIFY_OPTIONS: dict[Capability, tuple[str, Any]] = {
    Capability.LABELS: ("labels", ("good", "bad")),
    Capability.LABEL_SENTENCES: ("label_sentence", "It is {label}."),
    Capability.LOGITS: ("return_logits", True),
}
_CHAT_OPTIONS: dict[Capability, tuple[str, Any]] = {
    Capability.CHAT_TEMPLATE: ("continue_final_message", True),
}
_TELLING: dict[str, Any] = {option.name: option.telling for option in SAMPLING_OPTIONS}
_SAMPLING_OPTIONS: dict[Capability, tuple[str, Any]] = {
    Capability.LOGPROBS: ("return_logprobs", True),
    Capability.SEED: ("seed", _TELLING["seed"]),
}


def ready(check: Check, subject: Subject) -> None:
    """Raise `NotTestable` for a model on which the check cannot tell anything."""
    if check.id.partition(".")[0] in _WITHOUT_PROMPTS:
        return
    length: object = subject.model.info.context_length  # what is not a length is for loading.info
    small = isinstance(length, int) and 0 < length < CONTEXT
    testable(
        not small,
        f"the model's context holds {length} tokens, but the prompts of the suite need {CONTEXT}: "
        "use a model with a longer context, or load it with a larger context_len",
    )
    if _chats(check, subject):
        testable(has_template(subject), _NO_TEMPLATE)


def has_template(subject: Subject) -> bool:
    """Return whether the model has a chat template; asked once for a subject.

    A template that refuses a single user message does not count.
    """
    if subject not in _templates:
        try:
            list(subject.model.chat([Message("user", "Hello")], max_tokens=1))
        except ChatTemplateError:
            _templates[subject] = False
        except Exception:  # noqa: BLE001 - whatever it is, it is for the checks to say
            _templates[subject] = True
        else:
            _templates[subject] = True
    return _templates[subject]


def usable(subject: Subject) -> list[Capability]:
    """Return the declared ones of `OPERATIONS` that work with this model: chat needs a template."""
    names = subject.operations()
    if Capability.CHAT in names and not has_template(subject):
        names.remove(Capability.CHAT)
        testable(bool(names), _NO_TEMPLATE)
    return names


def goes_on(
    subject: Subject, answers: Iterable[Sized], operation: Capability | None = None
) -> None:
    """Raise unless one of these sequences of greedy tokens has a token.

    `NotTestable` where the model ends at once; `Violation` where it is the backend that never
    gives a token, at a very high temperature neither. ``operation``: that of the streams.
    """
    if not any(len(answer) for answer in answers):
        streams = any(subject.declares(name) for name in SPEAKING)
        usual = voice(subject) if streams else Capability.BATCH_GENERATE
        speaks(subject, operation or usual)
        testable(False, _SILENT)


def _chats(check: Check, subject: Subject) -> bool:
    """Return whether the check goes through chat."""
    by_chat = voice(subject) is Capability.CHAT
    return any(need == Capability.CHAT or (need == SPEAKING and by_chat) for need in check.needs)


def refuses(subject: Subject, capability: Capability) -> None:
    """Raise `Violation` unless the backend refuses what it does not declare."""
    if capability is Capability.LABEL_SENTENCES and not subject.classifies:
        # Either is refused: classify, or this option of it.
        name, value = _CLASSIFY_OPTIONS[capability]
        call = partial(_call, subject, Capability.CLASSIFY, {name: value})
        _must_raise(CoreError, capability, call)
    elif capability in _OPERATIONS:
        _must_raise(UnsupportedOperationError, capability, lambda: _OPERATIONS[capability](subject))
    elif capability in _LOAD_OPTIONS:
        name, value = _LOAD_OPTIONS[capability]
        _must_raise(
            UnsupportedOptionError, capability, lambda: subject.load(**{name: value}).close()
        )
    elif capability in _CHAT_OPTIONS:
        if subject.declares(Capability.CHAT):
            name, value = _CHAT_OPTIONS[capability]
            call = partial(_call, subject, Capability.CHAT, {name: value})
            _must_raise(UnsupportedOptionError, capability, call)
    elif capability in _CLASSIFY_OPTIONS | _SAMPLING_OPTIONS:
        _refuses_option(subject, capability)
    else:
        _is_no_instance(subject, capability)


def may_refuse(subject: Subject, error: UnsupportedOptionError) -> bool:
    """Return whether this is the refusal, at the call, of an option that need not be honoured."""
    if error.option not in REFUSABLE or error.backend != subject.backend.name:
        return False
    option = {error.option: _TELLING[error.option]}
    refused = [_refuses_at_call(subject, name, option) for name in subject.operations()]
    return any(refused) and not any(
        _refuses_at_call(subject, name, {}) for name in subject.operations()
    )


def _refuses_at_call(subject: Subject, name: Capability, option: dict[str, Any]) -> bool:
    try:
        _call(subject, name, option)
    except UnsupportedOptionError:
        return True
    return False


def _refuses_option(subject: Subject, capability: Capability) -> None:
    option, value = (_CLASSIFY_OPTIONS | _SAMPLING_OPTIONS)[capability]
    known = (Capability.CLASSIFY, Capability.GENERATE)
    usual = [name for name in subject.operations() if name in known]
    for name in usual or subject.operations():  # the others' are for errors.undeclared-options
        if name is Capability.CLASSIFY or capability in _SAMPLING_OPTIONS:
            call = partial(_call, subject, name, {option: value})
            _must_raise(UnsupportedOptionError, capability, call)
    if not subject.operations() and subject.declares(Capability.SUBMITTING):
        config = GenerateConfig(**{option: value})
        submit = partial(submitting(subject).submit, _PROMPT, config)
        _must_raise(UnsupportedOptionError, capability, submit)


def _call(subject: Subject, name: Capability, option: dict[str, Any]) -> None:
    prompt = _CHAT if name is Capability.CHAT else _PROMPT
    rows = name in (Capability.CLASSIFY, Capability.BATCH_GENERATE)
    length = {} if name is Capability.CLASSIFY else {"max_tokens": 1}
    getattr(subject.model, name)([prompt] if rows else prompt, **length, **option)


def _is_no_instance(subject: Subject, capability: Capability) -> None:
    offering = subject.backend if capability in OF_BACKENDS else subject.model
    implemented = isinstance(offering, PROTOCOLS[capability])
    must(not implemented, f"{capability} is not declared, but its methods exist")


def _must_raise(error: type[Exception], capability: Capability, call: Callable[[], object]) -> None:
    raised: Exception | None = None
    try:
        call()
    except Exception as other:  # noqa: BLE001 - its type is checked below
        raised = other
    well_formed(raised is not None, f"{capability} is not declared, and its call was not refused")
    must(
        isinstance(raised, error),
        f"{capability} is not declared: expected {error.__name__}, got {raised!r}",
    )
