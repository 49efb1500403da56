"""Options in pairs: every two values of different options come together once, in each operation.

Each answer is worked out again: every token from the logits (`oracle`), the end from the answer
without stops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import cast

from core.extensions import Submitting
from core.protocols import Capability, TextModel, TokenStream
from core.types import Token
from core_conformance.checking import ask, budget
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import Answer, read
from core_conformance.checking.calls import close_quietly
from core_conformance.checking.check import check
from core_conformance.checking.draws.cases import REQUEST, SAMPLING, table
from core_conformance.checking.draws.judging import judged, step_cost
from core_conformance.checking.draws.requests import ENDS, LENGTHS, Request, prepared
from core_conformance.checking.subject import Subject

_PROMPTS = (ask.REPEATING[0], ask.PLAIN[1], ask.PLAIN[4], ask.REPEATING[1])
_NEIGHBOURS = (ask.SHORT, ask.LONG)  # rows of other lengths: padding for one or for the others
_PASS = 0.4  # passes for a token, alone
_FEW = 12  # cases
_SLOTS = 2


@check(
    "pairs.generate",
    "Options MUST count together as each alone, in generate: what may be drawn, logprobs, the end",
    Capability.GENERATE,
    broad=True,
)
def in_generate(subject: Subject) -> None:
    _in_pairs(subject, Capability.GENERATE, 0.0)


@check(
    "pairs.chat",
    "Options MUST count together as each alone, in chat",
    Capability.CHAT,
    broad=True,
)
def in_chat(subject: Subject) -> None:
    _in_pairs(subject, Capability.CHAT, 0.14)


@check(
    "pairs.submit",
    "Options MUST count together as each alone, in submit",
    Capability.SUBMITTING,
    broad=True,
)
def in_submit(subject: Subject) -> None:
    _in_pairs(subject, Capability.SUBMITTING, 0.29)


@check(
    "pairs.batch",
    "Options MUST count together as each alone, in rows of a batch that are padded and wait for a "
    "slot",
    Capability.BATCH_GENERATE,
    broad=True,
)
def in_batches(subject: Subject) -> None:
    _in_few_slots(subject, Capability.BATCH_GENERATE, 0.43)


@check(
    "pairs.batch-stream",
    "Options MUST count together as each alone, in batch_stream",
    Capability.BATCH_STREAMING,
    broad=True,
)
def in_batch_streams(subject: Subject) -> None:
    _in_few_slots(subject, Capability.BATCH_STREAMING, 0.57)


@check(
    "pairs.rotate",
    'With context_overflow="rotate" options MUST count as without, while the context has room',
    Capability.GENERATE,
    Capability.ROTATE,
    broad=True,
)
def with_a_rotating_context(subject: Subject) -> None:
    with subject.loaded(context_overflow="rotate") as model:
        _in_pairs(subject, Capability.GENERATE, 0.71, model, _FEW)


@check(
    "pairs.neighbours",
    "A request MUST count its own options alone, whatever those submitted beside it ask for",
    Capability.SUBMITTING,
    Capability.GENERATE,
    broad=True,
)
def beside_others(subject: Subject) -> None:
    requests = list(_requests(subject, 0.71))
    submitting = cast("Submitting", subject.model)
    streams = [submitting.submit(item.prompts[0], item.config) for item in requests]
    try:
        answers = [read(item, r.prompts[0]) for item, r in zip(streams, requests, strict=True)]
    finally:
        for stream in streams:
            close_quietly(stream)
    for request, answer in zip(requests, answers, strict=True):
        request.judge(subject, [answer], " alongside other requests")
    goes_on(subject, [answer.tokens for answer in answers])


@check(
    "pairs.by-turns",
    "A stream MUST count its own options alone, whatever those read by turns with it ask for",
    Capability.PARALLEL,
    Capability.GENERATE,
    broad=True,
)
def by_turns(subject: Subject) -> None:
    requests, heard = list(_requests(subject, 0.86)), list[Answer]()
    with subject.loaded(parallel_slots=_SLOTS) as model:
        for start in range(0, len(requests), _SLOTS):
            some = requests[start : start + _SLOTS]
            streams = [model.generate(item.prompts[0], item.config) for item in some]
            for request, answer in zip(some, _read_by_turns(streams), strict=True):
                answers = [dataclasses.replace(answer, prompt=request.prompts[0])]
                request.judge(subject, answers, " by turns with others")
                heard += answers
    goes_on(subject, [answer.tokens for answer in heard])


def _in_pairs(
    subject: Subject,
    operation: Capability,
    part: float,
    model: TextModel | None = None,
    most: int | None = None,
) -> None:
    """Ask one operation with each case, two prompts or a batch of more."""
    batch = operation in (Capability.BATCH_GENERATE, Capability.BATCH_STREAMING)
    others = _NEIGHBOURS if batch else ()
    cases = table(subject, SAMPLING, ENDS, REQUEST, part=part)[:most]
    cost = _cost(subject, 2) + len(others)
    heard = list[Answer]()
    for number, case in budget.within(subject, enumerate(cases), lambda _: cost, "cases"):
        prompts = [_prompt(number), *others, _prompt(number + 1)]
        request = prepared(subject, operation, case, prompts)
        answers = request.answers(model or subject.model)
        request.judge(subject, answers)
        heard += answers
    goes_on(subject, [row.tokens for row in heard])


def _in_few_slots(subject: Subject, operation: Capability, part: float) -> None:
    """Run rows that wait for a free slot, if the number of slots can be set."""
    if not subject.declares(Capability.PARALLEL):
        _in_pairs(subject, operation, part)
        return
    with subject.loaded(parallel_slots=2) as model:
        _in_pairs(subject, operation, part, model)


def _prompt(number: int) -> str:
    return _PROMPTS[number % len(_PROMPTS)]


def _cost(subject: Subject, prompts: int) -> float:
    """Return the passes that a case takes.

    Its answers, those without stops, and what judges them.
    """
    return prompts * (2 * LENGTHS[1] * _PASS + judged(subject) * (_PASS + step_cost(subject)))


def _requests(subject: Subject, part: float) -> Iterator[Request]:
    """Yield a single-prompt request for each case, as many as the passes allow."""
    cases = table(subject, SAMPLING, ENDS, REQUEST, part=part)
    cost = _cost(subject, 1)
    for number, case in budget.within(subject, enumerate(cases), lambda _: cost, "cases"):
        yield prepared(subject, Capability.GENERATE, case, [_prompt(number)])


def _read_by_turns(streams: Sequence[TokenStream]) -> list[Answer]:
    """Read streams to their ends, a token of each at a time."""
    outputs: list[list[Token]] = [[] for _ in streams]
    running = list(range(len(streams)))
    while running:
        for place in list(running):
            token = next(streams[place], None)
            if token is None:
                running.remove(place)
            else:
                outputs[place].append(token)
    return [
        Answer(tuple(tokens), stream.finish_reason)
        for tokens, stream in zip(outputs, streams, strict=True)
    ]
