"""The other leg of every optional clause: what is not declared is refused, at the call.

One entry per capability: the call that it is about, which must raise before any work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core import extensions
from core.capability import Capability
from core.errors import UnsupportedOperationError, UnsupportedOptionError
from core.types import Message
from core_conformance.model import must
from core_conformance.subject import Subject

_PROMPT = "The weather today is"
_CHAT = (Message("user", "Hello"),)

_PROTOCOLS: dict[Capability, type] = {
    Capability.TOKENIZING: extensions.Tokenizing,
    Capability.SUBMITTING: extensions.Submitting,
    Capability.BATCH_STREAMING: extensions.BatchStreaming,
    Capability.CLASSIFY_STREAMING: extensions.ClassifyStreaming,
    Capability.SCORING: extensions.Scoring,
    Capability.ATTENTION_INSPECTOR: extensions.AttentionInspector,
    Capability.MEMORY_REPORTING: extensions.MemoryReporting,
    Capability.EXPLAINING: extensions.Explaining,
    Capability.TRAINABLE: extensions.Trainable,
}
_BACKEND_PROTOCOLS: dict[Capability, type] = {
    Capability.MODEL_PROBE: extensions.ModelProbe,
    Capability.DEVICE_REPORTING: extensions.DeviceReporting,
}
_OPERATIONS: dict[Capability, Callable[[Subject], object]] = {
    Capability.GENERATE: lambda subject: subject.model.generate(_PROMPT),
    Capability.CHAT: lambda subject: subject.model.chat(_CHAT),
    Capability.CLASSIFY: lambda subject: subject.model.classify([_PROMPT]),
    Capability.BATCH_GENERATE: lambda subject: subject.model.batch_generate([_PROMPT]),
}
_LOAD_OPTIONS: dict[Capability, tuple[str, Any]] = {
    Capability.PARALLEL: ("parallel_slots", 2),
    Capability.ROTATE: ("context_overflow", "rotate"),
    Capability.ADAPTERS: ("adapter_path", "adapter"),
}
_CLASSIFY_OPTIONS: dict[Capability, tuple[str, Any]] = {
    Capability.LABELS: ("labels", ("good", "bad")),
    Capability.LOGITS: ("return_logits", True),
}
_SAMPLING_OPTIONS: dict[Capability, tuple[str, Any]] = {
    Capability.LOGPROBS: ("return_logprobs", True),
    Capability.SEED: ("seed", 1),
}
# Options that no capability stands for: a backend that cannot honour one refuses it by its name.
_FREE_OPTIONS: dict[str, Any] = {
    "temperature": 0.5,
    "top_k": 2,
    "top_p": 0.5,
    "min_p": 0.5,
    "repeat_penalty": 1.5,
}


def refuses(subject: Subject, capability: Capability) -> None:
    """Raise `Violation` unless the backend refuses what it does not declare."""
    if capability in _OPERATIONS:
        _must_raise(UnsupportedOperationError, capability, lambda: _OPERATIONS[capability](subject))
    elif capability in _LOAD_OPTIONS:
        name, value = _LOAD_OPTIONS[capability]
        _must_raise(
            UnsupportedOptionError, capability, lambda: subject.load(**{name: value}).close()
        )
    elif capability in _CLASSIFY_OPTIONS | _SAMPLING_OPTIONS:
        _refuses_option(subject, capability)
    else:
        _is_no_instance(subject, capability)


def may_refuse(subject: Subject, error: UnsupportedOptionError) -> bool:
    """Whether this is the refusal, at the call, of an option that need not be honoured."""
    if error.option not in _FREE_OPTIONS or error.backend != subject.backend.name:
        return False
    option = {error.option: _FREE_OPTIONS[error.option]}
    refused = [_refuses_at_call(subject, name, option) for name in _operations(subject)]
    return any(refused) and not any(
        _refuses_at_call(subject, name, {}) for name in _operations(subject)
    )


def _operations(subject: Subject) -> list[Capability]:
    return [name for name in _OPERATIONS if subject.declares(name)]


def _refuses_at_call(subject: Subject, name: Capability, option: dict[str, Any]) -> bool:
    asked = _CHAT if name is Capability.CHAT else _PROMPT
    rows = name in (Capability.CLASSIFY, Capability.BATCH_GENERATE)
    length = {} if name is Capability.CLASSIFY else {"max_tokens": 1}
    try:
        getattr(subject.model, name)([asked] if rows else asked, **length, **option)
    except UnsupportedOptionError:
        return True
    return False


def _refuses_option(subject: Subject, capability: Capability) -> None:
    name, value = (_CLASSIFY_OPTIONS | _SAMPLING_OPTIONS)[capability]
    options: dict[str, Any] = {name: value}
    if subject.declares(Capability.CLASSIFY):
        _must_raise(
            UnsupportedOptionError,
            capability,
            lambda: subject.model.classify([_PROMPT], **options),
        )
    if capability in _SAMPLING_OPTIONS and subject.declares(Capability.GENERATE):
        _must_raise(
            UnsupportedOptionError, capability, lambda: subject.model.generate(_PROMPT, **options)
        )


def _is_no_instance(subject: Subject, capability: Capability) -> None:
    if capability in _BACKEND_PROTOCOLS:
        found = isinstance(subject.backend, _BACKEND_PROTOCOLS[capability])
    else:
        found = isinstance(subject.model, _PROTOCOLS[capability])
    must(not found, f"{capability} is not declared, but its methods are there")


def _must_raise(error: type[Exception], capability: Capability, call: Callable[[], object]) -> None:
    try:
        call()
    except error:
        return
    except Exception as other:  # noqa: BLE001 - whatever it is, it is the wrong one
        must(False, f"{capability} is not declared: expected {error.__name__}, got {other!r}")
    must(False, f"{capability} is not declared, and its call was not refused")
