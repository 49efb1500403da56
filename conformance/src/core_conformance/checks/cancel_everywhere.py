"""cancel and timeout in the operations that are other forms of generate and classify."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from core.capability import Capability
from core.errors import (
    ChatTemplateError,
    GenerationCancelled,
    GenerationTimeout,
    UnsupportedOptionError,
)
from core.extensions import BatchStreaming, ClassifyStreaming, Submitting
from core.options import GenerateConfig
from core_conformance.calls import CHAT, PROMPTS, already_set, declared, ending, unless_refused
from core_conformance.model import must
from core_conformance.registry import check
from core_conformance.subject import Subject

_AT_ONCE = 1e-9  # seconds: over before anything can be done
_MANY = 16  # tokens


@check(
    "cancel.every-operation",
    "A cancel that is set already MUST stop chat, submit, batch_stream and classify_iter as well.",
)
def cancel(subject: Subject) -> None:
    with unless_refused("cancel"):
        _must_stop(subject, GenerationCancelled, cancel=already_set())


@check(
    "cancel.timeout-every-operation",
    "timeout MUST stop chat, submit, batch_stream and classify_iter as well.",
)
def timeout(subject: Subject) -> None:
    with unless_refused("timeout"):
        _must_stop(subject, GenerationTimeout, timeout=_AT_ONCE)


def _must_stop(subject: Subject, kind: type[Exception], **options: Any) -> None:
    for name in declared(subject, *_ENDS):
        end = _ENDS[name]
        for error in end(subject.model, options):
            if isinstance(error, UnsupportedOptionError):
                raise error
            what = f"{end.__name__[1:]} with {sorted(options)}"
            must(
                isinstance(error, kind),
                f"{what} ended with {error!r}: it has to be {kind.__name__}",
            )


def _chat(model: Any, options: dict[str, Any]) -> list[Exception | None]:
    error = ending(lambda: model.chat(CHAT, max_tokens=_MANY, **options)).error
    return [] if isinstance(error, ChatTemplateError) else [error]


def _submit(model: Any, options: dict[str, Any]) -> list[Exception | None]:
    config = GenerateConfig(max_tokens=_MANY, **options)
    return [ending(lambda: cast("Submitting", model).submit(PROMPTS[0], config)).error]


def _batch_stream(model: Any, options: dict[str, Any]) -> list[Exception | None]:
    stream = cast("BatchStreaming", model).batch_stream(PROMPTS, max_tokens=_MANY, **options)
    try:
        pairs = list(stream)
    except Exception as error:  # noqa: BLE001 - the check looks at it
        return [error]
    must(not pairs, f"batch_stream with {sorted(options)} gave {len(pairs)} tokens and no error")
    return [None]


def _classify_iter(model: Any, options: dict[str, Any]) -> list[Exception | None]:
    try:
        results = list(cast("ClassifyStreaming", model).classify_iter(iter(PROMPTS), **options))
    except (GenerationCancelled, GenerationTimeout) as error:
        must(False, f"classify_iter raised {error!r}: it has to be the error of each result")
        return []
    return [result.error for result in results]


_ENDS: dict[Capability, Callable[[Any, dict[str, Any]], list[Exception | None]]] = {
    Capability.CHAT: _chat,
    Capability.SUBMITTING: _submit,
    Capability.BATCH_STREAMING: _batch_stream,
    Capability.CLASSIFY_STREAMING: _classify_iter,
}
