"""Checks of operations in an event loop: as they are elsewhere, and cancelled with their task."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from core.errors import GenerationCancelled, GenerationTimeout, RequestError
from core.options import GenerateConfig
from core.protocols import Capability
from core.types import GenerateMetrics, Token
from core_conformance.checking import ask
from core_conformance.checking.applies import has_template
from core_conformance.checking.ask import PLAIN, Answer, evidence, tokenizing
from core_conformance.checking.calls import CHAT, PROMPTS, already_set, promptly, unless_refused
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.compare import near, same_answers
from core_conformance.checking.subject import Subject

T = TypeVar("T")
_LENGTH, _PROMPTS = 4, PROMPTS[:2]
_NOTHING = "no operation but generate, classify and batch_generate is declared, or works here"


@check(
    "async.operations",
    "Every operation MUST give in an event loop what its method gives, with its metrics: chat, "
    "submit, stream_tokens, batch_stream and classify_iter as streams, with a finish_reason where "
    "they are of tokens; score, hidden_states and generate_tokens awaited",
    Capability.ASYNCHRONOUS,
)
def every_operation(subject: Subject) -> None:
    streams, calls = _streams(subject), _calls(subject)
    testable(bool(streams or calls), _NOTHING)
    model: Any = subject.model
    for name, (arguments, options) in streams.items():
        own = getattr(model, name)(*arguments, **options)
        wanted = list(own)
        counted = model.metrics
        items, reason, metrics = _run(subject, _read(model, name, arguments, options))
        _same(subject, name, wanted, items)
        ended = own.finish_reason if _of_tokens(name) else None
        must(reason == ended, f"{name} ended with {ended!r}, and in an event loop with {reason!r}")
        _same_cost(name, counted, metrics)
    for name, (arguments, options) in calls.items():
        wanted = getattr(model, name)(*arguments, **options)
        counted = model.metrics
        results, metrics = _run(subject, model.call_async(name, *arguments, **options))
        _same(subject, name, wanted, results)
        _same_cost(name, counted, metrics)


Arguments = dict[str, tuple[tuple[Any, ...], dict[str, Any]]]


def _streams(subject: Subject) -> Arguments:
    """Return the operations that give streams, with their arguments."""
    some: dict[str, Any] = {"max_tokens": _LENGTH, **evidence(subject)}
    calls: Arguments = {}
    if subject.declares(Capability.CHAT) and has_template(subject):
        calls["chat"] = (CHAT,), some
    if subject.declares(Capability.SUBMITTING):
        calls["submit"] = (PROMPTS[0], GenerateConfig(**some)), {}
    if subject.declares(Capability.TOKEN_PROMPTS, Capability.TOKENIZING):
        calls["stream_tokens"] = (tokenizing(subject).encode(PROMPTS[0]),), some
    if subject.declares(Capability.BATCH_STREAMING):
        calls["batch_stream"] = (_PROMPTS,), some
    if subject.declares(Capability.CLASSIFY_STREAMING):
        calls["classify_iter"] = (_PROMPTS,), _labelled(subject)
    return calls


def _calls(subject: Subject) -> Arguments:
    """Return the operations that give all at once, with their arguments."""
    calls: Arguments = {}
    if subject.declares(Capability.SCORING):
        calls["score"] = (_PROMPTS, [" good", " bad"]), {}
    if subject.declares(Capability.HIDDEN_STATES):
        calls["hidden_states"] = (_PROMPTS,), {}
    if subject.declares(Capability.TOKEN_PROMPTS, Capability.TOKENIZING):
        rows = [tokenizing(subject).encode(prompt) for prompt in _PROMPTS]
        calls["generate_tokens"] = (rows,), {"max_tokens": _LENGTH}
    return calls


def _labelled(subject: Subject) -> dict[str, Any]:
    return {"labels": ask.LABELS} if subject.declares(Capability.LABELS) else {}


def _of_tokens(name: str) -> bool:
    return name not in ("batch_stream", "classify_iter")


def _same(subject: Subject, name: str, wanted: list[Any], items: list[Any]) -> None:
    """Raise `Violation` unless both gave the same tokens, numbers or labels."""
    what = f"{name}, called and in an event loop"
    must(len(items) == len(wanted) or _of_tokens(name), f"{what}: {len(wanted)} and {len(items)}")
    if name in ("chat", "submit", "stream_tokens", "batch_stream"):
        for row in range(len(_PROMPTS)):
            pair = _tokens(wanted, row), _tokens(items, row)
            same_answers(subject, [pair], what)
        return
    for one, other in zip(wanted, items, strict=True):
        must(other.error is None, f"{what}: the second has {other.error!r}")
        numbers = list(zip(_numbers(one), _numbers(other), strict=True))
        must(
            getattr(one, "label", None) == getattr(other, "label", None)
            and all(near(subject, *pair, tokens=len(numbers)) for pair in numbers),
            f"{what}: {one!r} and {other!r}",
        )


def _tokens(items: list[Any], row: int) -> Answer:
    """Return the tokens of a stream, or of one row of several."""
    pairs = [(0, item) if isinstance(item, Token) else item for item in items]
    return Answer(tuple(token for place, token in pairs if place == row), None)


def _numbers(result: Any) -> list[float]:
    """Return the numbers of a result that are compared: ids, logprobs or a label's share."""
    if hasattr(result, "ids"):
        return [float(id) for id in result.ids]
    if hasattr(result, "token_logprobs"):
        return list(result.token_logprobs)
    if hasattr(result, "states"):
        return []  # how near two runs of these are is for the checks of hidden states
    return [] if result.token is None else [float(result.token.id)]


def _same_cost(name: str, counted: GenerateMetrics, metrics: GenerateMetrics) -> None:
    wanted = counted.prompt_tokens, counted.generated_tokens
    must(
        (metrics.prompt_tokens, metrics.generated_tokens) == wanted,
        f"{name} in an event loop has the metrics {metrics}, and where it was called {counted}",
    )


async def _read(
    model: Any, name: str, arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[list[Any], str | None, GenerateMetrics]:
    stream = model.stream_async(name, *arguments, **options)
    items = [item async for item in stream]
    return items, stream.finish_reason, stream.metrics


def _run(subject: Subject, work: Coroutine[Any, Any, T]) -> T:
    return promptly(subject, lambda: asyncio.run(work), "an awaited call")


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
        [
            row.error
            for row in _waiting(subject, model.call_async(name, *rows, *config, **keywords))[0]
        ]
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
    results = [_waiting(subject, read(config))]
    return results if name == "submit" else [*results, _waiting(subject, read(**options))]


def _waiting(subject: Subject, work: Coroutine[Any, Any, T]) -> T:
    return promptly(subject, lambda: asyncio.run(work), "an awaited call")
