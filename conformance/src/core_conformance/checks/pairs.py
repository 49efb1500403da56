"""Options in pairs: every two values of different options come together once, in each operation.

Each answer is worked out again: every token from the logits (`oracle`), the end from the answer
without stops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary

from core.extensions import BatchStreaming, Submitting, Tokenizing
from core.options import GenerateConfig
from core.protocols import Capability, TextModel
from core.types import Message, Token
from core_conformance.checking import ask, budget
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import Answer, answer, evidence, read, tokenizing
from core_conformance.checking.calls import together
from core_conformance.checking.cases import (
    REQUEST,
    SAMPLING,
    Factors,
    ask_in_form,
    options,
    shown,
    table,
)
from core_conformance.checking.judging import agree, drawn_well, end_alike, ended_well, stopped
from core_conformance.checking.pairwise import Case
from core_conformance.checking.registry import check
from core_conformance.checking.subject import Subject

PROMPTS = (ask.REPEATING[0], ask.PLAIN[1], ask.PLAIN[4], ask.REPEATING[1])
_NEIGHBOURS = (ask.SHORT, ask.LONG)  # rows of other lengths: padding for one or for the others
_LENGTHS = (3, 6)  # tokens
_ENDS: Factors = {
    "max_tokens": _LENGTHS,
    "stop": ("none", "said", "never"),
    "stop_tokens": ("none", "said"),
}
_PASS = 0.5  # passes for a token, alone, with the logits in front of it
_FEW = 4  # cases
_NEVER = "\u2603never\u2603"
_FOREIGN = {"labels": ("good", "bad"), "label_prefix": "?", "labels_only": True}

Ask = Callable[..., list[Answer]]
_alone: WeakKeyDictionary[Subject, dict[str, tuple[Answer, dict[str, Any]]]] = WeakKeyDictionary()


def generate(model: TextModel, prompts: Sequence[str], *config: Any, **asked: Any) -> list[Answer]:
    return [read(model.generate(prompt, *config, **asked), prompt) for prompt in prompts]


def chat(model: TextModel, prompts: Sequence[str], *config: Any, **asked: Any) -> list[Answer]:
    known = isinstance(model, Tokenizing)
    return [
        read(
            model.chat(_said(prompt), *config, **asked),
            cast("Tokenizing", model).render_chat(_said(prompt)) if known else "",
        )
        for prompt in prompts
    ]


def submit(
    model: TextModel,
    prompts: Sequence[str],
    config: GenerateConfig | None = None,
    /,
    **asked: Any,
) -> list[Answer]:
    request = dataclasses.replace(config or GenerateConfig(), **asked)
    streams = [cast("Submitting", model).submit(prompt, request) for prompt in prompts]
    return [read(stream, prompt) for stream, prompt in zip(streams, prompts, strict=True)]


def batch_generate(
    model: TextModel, prompts: Sequence[str], *config: Any, **asked: Any
) -> list[Answer]:
    results = model.batch_generate(prompts, *config, **asked)
    return [answer(result, prompt) for result, prompt in zip(results, prompts, strict=True)]


def batch_stream(
    model: TextModel, prompts: Sequence[str], *config: Any, **asked: Any
) -> list[Answer]:
    rows: list[list[Token]] = [[] for _ in prompts]
    for row, token in cast("BatchStreaming", model).batch_stream(prompts, *config, **asked):
        rows[row].append(token)
    return [Answer(tuple(row), None, prompt) for row, prompt in zip(rows, prompts, strict=True)]


def _said(prompt: str) -> list[Message]:
    return [Message("user", prompt)]


_ASK: dict[Capability, Ask] = {
    Capability.GENERATE: generate,
    Capability.CHAT: chat,
    Capability.SUBMITTING: submit,
    Capability.BATCH_GENERATE: batch_generate,
    Capability.BATCH_STREAMING: batch_stream,
}


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
    "A request MUST count its own options alone, whatever those beside it ask for",
    (Capability.SUBMITTING, Capability.PARALLEL),
    Capability.GENERATE,
    broad=True,
)
def beside_others(subject: Subject) -> None:
    cases = table(subject, SAMPLING, _ENDS, REQUEST, part=0.86)
    fitting = budget.within(subject, enumerate(cases), lambda _: 2 * _LENGTHS[1], "requests")
    requests = [
        _prepared(subject, Capability.GENERATE, case | {"form": "config"}, [_prompt(number)])
        for number, case in fitting
    ]
    for request, found in zip(requests, _at_once(subject, requests), strict=True):
        request.judge(subject, found, " beside other requests")


@dataclass(frozen=True, slots=True)
class _Request:
    """A call with the options of a case; ``free``: the answer without stops, of some rows.

    Draws without a seed have none.
    """

    operation: Capability
    prompts: list[str]
    form: str
    asked: dict[str, Any]
    free: dict[int, Answer]

    def answers(self, model: TextModel) -> list[Answer]:
        """What the operation gives."""
        call = partial(_ASK[self.operation], model, self.prompts)
        found, _ = ask_in_form(self.form, self.asked, _FOREIGN, call)
        return cast("list[Answer]", found)

    def judge(self, subject: Subject, answers: Sequence[Answer], beside: str = "") -> None:
        """Raise `Violation` for an answer that is not what the options make of it."""
        what = self.prompts[0] if len(self.prompts) == 1 else self.prompts
        call = shown(_ASK[self.operation].__name__, what, self.asked) + beside
        for row in answers:
            ended_well(call, row, self.asked)
            drawn_well(subject, call, row, self.asked)
        pairs = [(stopped(free, self.asked), answers[row]) for row, free in self.free.items()]
        agree(subject, call, pairs, self.asked)
        for expected, found in pairs:
            end_alike(call, expected, found)


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
    cases = table(subject, SAMPLING, _ENDS, REQUEST, part=part)[:most]
    cost = 2 * _LENGTHS[1] * _PASS + len(others)
    heard = list[Answer]()
    for number, case in budget.within(subject, enumerate(cases), lambda _: cost, "cases"):
        prompts = [_prompt(number), *others, _prompt(number + 1)]
        request = _prepared(subject, operation, case, prompts)
        answers = request.answers(model or subject.model)
        request.judge(subject, answers)
        heard += answers
    goes_on(subject, [row.tokens for row in heard])


def _in_few_slots(subject: Subject, operation: Capability, part: float) -> None:
    """Rows that wait until a slot is free, where the number of slots can be asked for."""
    if not subject.declares(Capability.PARALLEL):
        _in_pairs(subject, operation, part)
        return
    with subject.loaded(parallel_slots=2) as model:
        _in_pairs(subject, operation, part, model)


def _prompt(number: int) -> str:
    return PROMPTS[number % len(PROMPTS)]


def _prepared(subject: Subject, operation: Capability, case: Case, prompts: list[str]) -> _Request:
    """The request of a case, with stops that the answers without stops say."""
    sampling = {name: case[name] for name in SAMPLING if name in case}
    rows = sorted({0, len(prompts) - 1})  # those of `PROMPTS`
    free, asked = dict[int, Answer](), options(sampling)
    for row in rows:
        free[row], asked = _free(subject, operation, prompts[row], asked)

    ends = _stops(case, list(free.values())) | {"max_tokens": case["max_tokens"]}
    request = options({name: case[name] for name in REQUEST})
    repeatable = not asked.get("temperature") or "seed" in asked
    return _Request(
        operation, prompts, case["form"], asked | ends | request, free if repeatable else {}
    )


def _free(
    subject: Subject, operation: Capability, prompt: str, asked: dict[str, Any]
) -> tuple[Answer, dict[str, Any]]:
    """The answer without stops, by generate, and the options that were not refused."""
    asked_all = asked | evidence(subject) | {"max_tokens": _LENGTHS[1]}
    base = Capability.GENERATE if subject.declares(Capability.GENERATE) else operation
    if operation is Capability.CHAT:
        if subject.declares(Capability.TOKENIZING):
            prompt = tokenizing(subject).render_chat(_said(prompt))
        else:
            base = operation
    known = _alone.setdefault(subject, {})
    key = repr((base, prompt, asked_all))
    if key not in known:
        call = partial(_ASK[base], subject.model, [prompt])
        (found,), counted = ask_in_form("keywords", asked_all, {}, call)
        known[key] = found, {name: counted[name] for name in asked if name in counted}
    return known[key]


def _stops(case: Case, free: Sequence[Answer]) -> dict[str, Any]:
    """Stops that the first answer says somewhere in its middle; the last one, for tokens."""
    found: dict[str, Any] = {}
    text, ids = free[0].text.partition("\ufffd")[0], free[-1].ids
    if case["stop"] == "said" and text:
        found["stop"] = (text[len(text) // 2 :][:2], _NEVER)
    if case["stop"] == "never":
        found["stop"] = (text[-1:] + _NEVER,)
    if case["stop_tokens"] == "said" and ids:
        found["stop_tokens"] = (ids[len(ids) // 2],)
    return found


def _at_once(subject: Subject, requests: Sequence[_Request]) -> Iterator[list[Answer]]:
    """The answers of requests that run side by side."""
    model = subject.model
    if not subject.declares(Capability.SUBMITTING):
        yield from together(*(partial(request.answers, model) for request in requests))
        return
    submitting = cast("Submitting", model)
    streams = [
        submitting.submit(request.prompts[0], GenerateConfig(**request.asked))
        for request in requests
    ]
    for stream, request in zip(streams, requests, strict=True):
        yield [read(stream, request.prompts[0])]
