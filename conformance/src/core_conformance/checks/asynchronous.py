"""Checks of the calls that an event loop awaits: what comes, what stops them, who waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from core.errors import InvalidOptionError, ModelClosedError
from core.protocols import Capability
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import PLAIN, Answer, answer, evidence, sampled
from core_conformance.checking.budget import pass_seconds
from core_conformance.checking.calls import (
    PROMPTS,
    CancelAfter,
    greedy,
    greedy_options,
    longest,
    must_raise,
    promptly,
    same,
    texts,
    unless_refused,
)
from core_conformance.checking.check import check, leave_out, must, testable
from core_conformance.checking.compare import same_answers
from core_conformance.checking.loops import (
    FEW_LOOKS,
    CancelsItsTask,
    HoldsItsRequest,
    WatchesItsLoop,
    cancelled_in,
)
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.rows import asked

T = TypeVar("T")

_ROWS = (Capability.CLASSIFY, Capability.BATCH_GENERATE)
_FEW, _MANY = 4, 48  # tokens
_SECONDS, _OF_A_PASS = 0.2, 20  # of a long answer; tokens
_TASKS = 4
_ALONE = 0.25  # seconds without a look, after which polling has ended
_READ, _SHORT = 24, 0.1  # rows; seconds
_AT, _STOPPED = 0.25, 0.75  # shares of the looks: where a task is cancelled, where all is over


@check(
    "async.calls",
    "An awaited call MUST give what the method returns, with the metrics of that call",
    Capability.ASYNCHRONOUS,
    _ROWS,
    broad=True,
)
def calls(subject: Subject) -> None:
    model: Any = subject.model
    prompts = PLAIN[:3]
    for name, options in _asked(subject).items():
        own = getattr(model, name.value)(prompts, **options)
        counted = model.metrics.prompt_tokens
        results, metrics = _run(subject, model.call_async(name.value, prompts, **options))
        must(
            len(results) == len(prompts),
            f"{name} of {len(prompts)} prompts gave {len(results)} rows",
        )
        read = sampled if name is Capability.CLASSIFY else answer
        pairs = [
            (read(left, prompt), read(right))
            for prompt, left, right in zip(prompts, own, results, strict=True)
        ]
        same_answers(subject, pairs, f"{name}, called and awaited")
        must(
            metrics.prompt_tokens == counted,
            f"{name} that was awaited has {metrics.prompt_tokens} prompt_tokens, and {counted} "
            "where it was called",
        )


@check(
    "async.streams",
    "A stream that is read with `async for` MUST give what the method's stream gives, and end as "
    "it does",
    Capability.ASYNCHRONOUS,
    Capability.GENERATE,
    broad=True,
)
def streams(subject: Subject) -> None:
    model: Any = subject.model
    answers = []
    for prompt in (longest(subject)[0], *PROMPTS[:2]):
        own = model.generate(prompt, **greedy_options(subject, _FEW))
        left = Answer(tuple(own), own.finish_reason, prompt)
        right, metrics = _run(subject, _read(subject, model, prompt))
        same_answers(subject, [(left, right)], f"generate of {prompt!r}, called and awaited")
        must(
            right.finish_reason == left.finish_reason,
            f"the stream ended with {right.finish_reason!r}, and {left.finish_reason!r} elsewhere",
        )
        must(
            metrics.generated_tokens == len(right.tokens),
            f"{len(right.tokens)} tokens were read, and metrics count {metrics.generated_tokens}",
        )
        answers.append(right.tokens)
    goes_on(subject, answers)


@check(
    "async.errors",
    "Wrong options MUST raise at the call of a stream, and where a call is awaited; so MUST every "
    "use of a closed model",
    Capability.ASYNCHRONOUS,
    Capability.GENERATE,
    broad=True,
)
def errors(subject: Subject) -> None:
    model: Any = subject.model
    wrong = {"temperature": -1.0}
    must_raise(
        InvalidOptionError,
        lambda: model.stream_async("generate", PROMPTS[0], **wrong),
        "stream_async of generate with temperature=-1",
    )
    must_raise(
        TypeError,
        lambda: model.stream_async("generate", PROMPTS[0], no_such_option=1),
        "stream_async of generate with an option that there is not",
    )
    for name in (operation for operation in _ROWS if subject.declares(operation)):
        must_raise(
            InvalidOptionError,
            lambda name=name: _run(subject, model.call_async(name.value, PROMPTS[:1], **wrong)),  # type: ignore[misc]
            f"call_async of {name} with temperature=-1",
        )
    with subject.loaded() as loaded:
        closed: Any = loaded
        closed.close()
        must_raise(
            ModelClosedError,
            lambda: _run(subject, _read(subject, closed, PROMPTS[0])),
            "an awaited stream of a closed model",
        )


@check(
    "async.cancelled",
    "A task that is cancelled while it waits MUST stop its request, and leave a model that works",
    Capability.ASYNCHRONOUS,
    Capability.GENERATE,
    broad=True,
)
def cancelled(subject: Subject) -> None:
    model: Any = subject.model
    prompt, _ = longest(subject)
    expected = greedy(subject, model, prompt, _FEW)
    goes_on(subject, [expected])
    most = min(_MANY, subject.model.info.context_length // 2)
    ways = ["generate"]
    if subject.declares(Capability.BATCH_GENERATE):
        ways.append("batch_generate")
    with unless_refused("cancel"):
        for way in ways:
            calm = CancelAfter()
            _run(subject, _awaited(model, way, prompt, most, calm))
            if calm.seen < FEW_LOOKS:
                leave_out(f"{way}, whose cancel is looked at {calm.seen} times")
                continue
            witness = CancelsItsTask(max(1, int(_AT * calm.seen)))
            _run(subject, cancelled_in(witness, _awaited(model, way, prompt, most, witness)))
            seen = witness.settled(_ALONE)
            must(
                seen < _STOPPED * calm.seen,
                f"the task that awaited {way} was cancelled at its beginning, but its request "
                f"continued: its cancel was polled {seen} times, {calm.seen} when not cancelled",
            )
            tokens = greedy(subject, model, prompt, _FEW)
            must(
                same(subject, expected, tokens, prompt),
                f"after {way} in a task that was cancelled, the next call gave {texts(tokens)}, "
                f"not {texts(expected)}",
            )


@check(
    "async.cancelled-rows",
    "A task that is cancelled while it waits for rows that are only read MUST stop its request",
    Capability.ASYNCHRONOUS,
    broad=True,
)
def cancelled_rows(subject: Subject) -> None:
    model: Any = subject.model
    calm, given_up = dict[str, int](), dict[str, CancelsItsTask]()
    with unless_refused("cancel"):
        for name, arguments in _reading(subject, [*asked(_READ)]).items():
            witness = CancelAfter()
            getattr(model, name)(*arguments, cancel=witness)
            if witness.seen < FEW_LOOKS:
                leave_out(f"{name}, whose cancel is looked at {witness.seen} times")
                continue
            calm[name] = witness.seen
            cancels = CancelsItsTask(max(1, int(_AT * witness.seen)))
            work = model.call_async(name, *arguments, cancel=cancels)
            _run(subject, cancelled_in(cancels, work))
            given_up[name] = cancels
    testable(bool(calm), "no operation looks at its cancel often enough while it reads rows")
    for witness in given_up.values():
        witness.settled(_SHORT)
    for name, witness in given_up.items():
        if witness.in_loop:  # a client that reads what has come already does not work meanwhile
            leave_out(f"{name}, whose cancel is looked at in the event loop")
        must(
            witness.in_loop or witness.seen < _STOPPED * calm[name],
            f"the task that awaited {name} was cancelled at its beginning, but its request "
            f"continued: its cancel was polled {witness.seen} times, {calm[name]} when not "
            "cancelled",
        )


@check(
    "async.closed",
    "A stream that is closed early MUST give no more, end its request, and say how it ended",
    Capability.ASYNCHRONOUS,
    Capability.GENERATE,
    broad=True,
)
def closed(subject: Subject) -> None:
    model: Any = subject.model
    prompt, _ = longest(subject)
    witness = HoldsItsRequest()
    most = _long(subject)

    async def run() -> tuple[object, int]:
        stream = model.stream_async("generate", prompt, max_tokens=most, cancel=witness)
        await anext(stream, None)
        witness.hold()
        await stream.aclose()
        await stream.aclose()
        witness.released.set()
        left = [token async for token in stream]
        return stream.finish_reason, len(left)

    with unless_refused("cancel"):
        reason, left = _run(subject, run())
        must(not left, f"a stream closed after its first token gave {left} more tokens")
        must(reason is not None, "a stream that was closed early has no finish_reason")
        seen = witness.seen
        time.sleep(_ALONE)
        must(witness.seen == seen, "a stream was closed, but its request continues")


@check(
    "async.loop",
    "The event loop MUST run on while a call is awaited, and calls of several tasks MUST each give "
    "what they give alone",
    Capability.ASYNCHRONOUS,
    Capability.GENERATE,
    broad=True,
)
def loop_runs_on(subject: Subject) -> None:
    model: Any = subject.model
    prompt, _ = longest(subject)
    way = "batch_generate" if subject.declares(Capability.BATCH_GENERATE) else "generate"
    watch = WatchesItsLoop()
    with unless_refused("cancel"):
        most = min(_MANY, subject.model.info.context_length // 2)
        _run(subject, _watched(model, way, prompt, most, watch))
        must(
            not watch.stood,
            f"while {way} was awaited, its request blocked the event loop",
        )
        if watch.seen < FEW_LOOKS:
            leave_out(f"{way}, whose cancel is looked at {watch.seen} times")
    prompts = [*PLAIN[:_TASKS]]
    alone = [_run(subject, _read(subject, model, text))[0] for text in prompts]

    async def together() -> list[Any]:
        return [*await asyncio.gather(*(_read(subject, model, text) for text in prompts))]

    concurrent = [tokens for tokens, _ in _run(subject, together())]
    pairs = list(zip(alone, concurrent, strict=True))
    same_answers(subject, pairs, "streams of several tasks, alone and alongside one another")


async def _watched(model: Any, way: str, prompt: str, most: int, watch: WatchesItsLoop) -> None:
    watch.watch()
    await _awaited(model, way, prompt, most, watch)


async def _awaited(model: Any, way: str, prompt: str, most: int, witness: CancelAfter) -> None:
    options = {"max_tokens": most, "cancel": witness}
    if way == "batch_generate":
        await model.call_async(way, [prompt] * 2, **options)
    else:
        async for _ in model.stream_async(way, prompt, **options):
            await asyncio.sleep(0)


def _reading(subject: Subject, prompts: list[str]) -> dict[str, tuple[object, ...]]:
    """Return the operations on rows that generate nothing, each with its arguments."""
    calls: dict[str, tuple[object, ...]] = {}
    if subject.classifies:
        calls["classify"] = (prompts,)
    if subject.declares(Capability.SCORING):
        calls["score"] = (prompts, [f" {text}" for text in prompts])
    if subject.declares(Capability.HIDDEN_STATES):
        calls["hidden_states"] = (prompts,)
    if subject.declares(Capability.TOKEN_PROMPTS, Capability.TOKENIZING):
        model: Any = subject.model
        ids = [model.encode(text) for text in prompts]
        calls["score_tokens"] = (ids, ids)
    return calls


async def _read(subject: Subject, model: Any, prompt: str) -> tuple[Answer, Any]:
    stream = model.stream_async("generate", prompt, **greedy_options(subject, _FEW))
    tokens = [token async for token in stream]
    return Answer(tuple(tokens), stream.finish_reason, prompt), stream.metrics


def _long(subject: Subject) -> int:
    """Return a length during which a cancel can arrive, at most what the context has room for."""
    fast = int(_SECONDS * _OF_A_PASS / pass_seconds(subject))
    return min(max(_MANY, fast), subject.model.info.context_length // 2)


def _asked(subject: Subject) -> dict[Capability, dict[str, Any]]:
    own = {Capability.BATCH_GENERATE: {"max_tokens": _FEW}}
    names = [name for name in _ROWS if subject.declares(name)]
    return {name: {**evidence(subject), **own.get(name, {})} for name in names}


def _run(subject: Subject, work: Coroutine[Any, Any, T]) -> T:
    return promptly(subject, lambda: asyncio.run(work), "an awaited call")
