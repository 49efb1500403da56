"""Checks that an awaited call hears the cancel and the timeout that its caller gave."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from core.errors import GenerationCancelled, GenerationTimeout, RequestError
from core.options import GenerateConfig
from core.protocols import Capability
from core_conformance.checking.ask import PLAIN
from core_conformance.checking.calls import already_set, promptly, unless_refused
from core_conformance.checking.check import check, must
from core_conformance.checking.subject import Subject

T = TypeVar("T")

_AT_ONCE = 1e-9  # seconds
_CALLS = {
    Capability.CLASSIFY: "classify",
    Capability.BATCH_GENERATE: "batch_generate",
    Capability.SCORING: "score",
    Capability.HIDDEN_STATES: "hidden_states",
}
_STREAMS = {
    Capability.GENERATE: "generate",
    Capability.SUBMITTING: "submit",
    Capability.BATCH_STREAMING: "batch_stream",
    Capability.CLASSIFY_STREAMING: "classify_iter",
}


@check(
    "async.callers-cancel",
    "An awaited call or stream MUST be stopped by its caller's own cancel and timeout, as keywords "
    "and in a config",
    Capability.ASYNCHRONOUS,
    (*_CALLS, *_STREAMS),
)
def callers_stop_their_requests(subject: Subject) -> None:
    cases: tuple[tuple[dict[str, Any], type[Exception]], ...] = (
        ({"cancel": already_set()}, GenerationCancelled),
        ({"timeout": _AT_ONCE}, GenerationTimeout),
    )
    for options, expected in cases:
        with unless_refused(next(iter(options))):
            for operation in filter(subject.declares, _CALLS):
                for errors in _called(subject, _CALLS[operation], options):
                    _must_stop(operation, options, errors, expected)
            for operation in filter(subject.declares, _STREAMS):
                for errors in _streamed(subject, _STREAMS[operation], options):
                    _must_stop(operation, options, errors, expected)


def _must_stop(
    operation: Capability,
    options: dict[str, Any],
    errors: list[Exception | None],
    expected: type[Exception],
) -> None:
    must(
        bool(errors) and all(isinstance(error, expected) for error in errors),
        f"{operation}, awaited, with {sorted(options)} of its caller gave the errors {errors}: "
        f"expected {expected.__name__}",
    )


def _called(subject: Subject, name: str, options: dict[str, Any]) -> list[list[Exception | None]]:
    """Return the errors of the rows, with keywords and with a config."""
    model: Any = subject.model
    rows: tuple[list[str], ...] = ([*PLAIN[:2]],)
    rows += ([" and", " so"],) if name == "score" else ()
    ways: tuple[tuple[tuple[GenerateConfig, ...], dict[str, Any]], ...] = (
        ((), options),
        ((GenerateConfig(**options),), {}),
    )
    return [
        [row.error for row in _run(subject, model.call_async(name, *rows, *config, **keywords))[0]]
        for config, keywords in ways
    ]


def _streamed(subject: Subject, name: str, options: dict[str, Any]) -> list[list[Exception | None]]:
    """Return the errors of a stream's results, or the one that it raised."""
    model: Any = subject.model
    prompts: Any = PLAIN[0] if name in ("generate", "submit") else [*PLAIN[:2]]

    async def read(*config: GenerateConfig, **keywords: Any) -> list[Exception | None]:
        stream = model.stream_async(name, prompts, *config, **keywords)
        try:
            return [getattr(item, "error", None) async for item in stream]
        except RequestError as error:
            return [error]

    config = GenerateConfig(**options)
    results = [_run(subject, read(config))]
    return results if name == "submit" else [*results, _run(subject, read(**options))]


def _run(subject: Subject, work: Coroutine[Any, Any, T]) -> T:
    return promptly(subject, lambda: asyncio.run(work), "an awaited call")
