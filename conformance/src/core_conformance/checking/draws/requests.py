"""Requests with the options of a case, in every operation that generates, and their judgement."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary

from core.extensions import BatchStreaming, Submitting, Tokenizing
from core.options import GenerateConfig
from core.protocols import Capability, TextModel
from core.types import Message, Token
from core_conformance.checking.ask import Answer, answer, evidence, read, tokenizing
from core_conformance.checking.draws.cases import (
    REQUEST,
    SAMPLING,
    Factors,
    ask_in_form,
    options,
    shown,
)
from core_conformance.checking.draws.judging import (
    agree,
    drawn_well,
    end_alike,
    ended_well,
    stopped,
)
from core_conformance.checking.draws.pairwise import Case
from core_conformance.checking.subject import Subject

LENGTHS = (3, 6)  # tokens
ENDS: Factors = {
    "max_tokens": LENGTHS,
    "stop": ("none", "said", "never"),
    "stop_tokens": ("none", "said"),
}
"""How a generation ends. ``said``: at something that it would say without."""

_NEVER = "\u2603never\u2603"
_FOREIGN = {"labels": ("good", "bad"), "label_prefix": "?", "labels_only": True}

Ask = Callable[..., list[Answer]]
_alone: WeakKeyDictionary[Subject, dict[str, tuple[Answer, dict[str, Any]]]] = WeakKeyDictionary()


def generate(
    model: TextModel, prompts: Sequence[str], *config: Any, **settings: Any
) -> list[Answer]:
    return [read(model.generate(prompt, *config, **settings), prompt) for prompt in prompts]


def chat(model: TextModel, prompts: Sequence[str], *config: Any, **settings: Any) -> list[Answer]:
    known = isinstance(model, Tokenizing)
    return [
        read(
            model.chat(_said(prompt), *config, **settings),
            cast("Tokenizing", model).render_chat(_said(prompt)) if known else "",
        )
        for prompt in prompts
    ]


def submit(
    model: TextModel,
    prompts: Sequence[str],
    config: GenerateConfig | None = None,
    /,
    **settings: Any,
) -> list[Answer]:
    request = dataclasses.replace(config or GenerateConfig(), **settings)
    streams = [cast("Submitting", model).submit(prompt, request) for prompt in prompts]
    return [read(stream, prompt) for stream, prompt in zip(streams, prompts, strict=True)]


def batch_generate(
    model: TextModel, prompts: Sequence[str], *config: Any, **settings: Any
) -> list[Answer]:
    results = model.batch_generate(prompts, *config, **settings)
    return [answer(result, prompt) for result, prompt in zip(results, prompts, strict=True)]


def batch_stream(
    model: TextModel, prompts: Sequence[str], *config: Any, **settings: Any
) -> list[Answer]:
    rows: list[list[Token]] = [[] for _ in prompts]
    for row, token in cast("BatchStreaming", model).batch_stream(prompts, *config, **settings):
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


@dataclass(frozen=True, slots=True)
class Request:
    """A call with the options of a case; ``free``: the answer without stops, of some rows.

    Draws without a seed have none.
    """

    operation: Capability
    prompts: list[str]
    form: str
    asked: dict[str, Any]
    free: dict[int, Answer]

    @property
    def config(self) -> GenerateConfig:
        """The options as a config."""
        return GenerateConfig(**self.asked)

    def answers(self, model: TextModel) -> list[Answer]:
        """Return the operation's answers."""
        call = partial(_ASK[self.operation], model, self.prompts)
        answers, _ = ask_in_form(self.form, self.asked, _FOREIGN, call)
        return cast("list[Answer]", answers)

    def judge(self, subject: Subject, answers: Sequence[Answer], others: str = "") -> None:
        """Raise `Violation` for an answer that is not what the options make of it."""
        what = self.prompts[0] if len(self.prompts) == 1 else self.prompts
        name = _ASK[self.operation].__name__
        form = "config" if self.operation is Capability.SUBMITTING else self.form
        call = shown(name, what, self.asked, form, _FOREIGN) + others
        for row in answers:
            ended_well(call, row, self.asked)
            drawn_well(subject, call, row, self.asked)
        pairs = [(stopped(free, self.asked), answers[row]) for row, free in self.free.items()]
        agree(subject, call, pairs, self.asked)
        for expected, seen in pairs:
            end_alike(call, expected, seen)


def prepared(subject: Subject, operation: Capability, case: Case, prompts: list[str]) -> Request:
    """Return the request of a case, with stops that the answers without stops say."""
    sampling = {name: case[name] for name in SAMPLING if name in case}
    rows = sorted({0, len(prompts) - 1})  # those of `PROMPTS`
    free, drawing = dict[int, Answer](), options(sampling)
    for row in rows:
        free[row], drawing = _free(subject, operation, prompts[row], drawing)

    ends = _stops(case, list(free.values())) | {"max_tokens": case["max_tokens"]}
    request = options({name: case[name] for name in REQUEST})
    repeatable = not drawing.get("temperature") or "seed" in drawing
    return Request(
        operation, prompts, case["form"], drawing | ends | request, free if repeatable else {}
    )


def _free(
    subject: Subject, operation: Capability, prompt: str, drawing: dict[str, Any]
) -> tuple[Answer, dict[str, Any]]:
    """Return the answer without stops, by generate, and the options that were not refused."""
    asked_all = drawing | evidence(subject) | {"max_tokens": LENGTHS[1]}
    needed = {Capability.GENERATE} | (
        {Capability.TOKENIZING} if operation is Capability.CHAT else set()
    )
    base = Capability.GENERATE if subject.declares(*needed) else operation
    if base is not operation and operation is Capability.CHAT:
        prompt = tokenizing(subject).render_chat(_said(prompt))
    known = _alone.setdefault(subject, {})
    key = repr((base, prompt, asked_all))
    if key not in known:
        call = partial(_ASK[base], subject.model, [prompt])
        (seen,), counted = ask_in_form("keywords", asked_all, {}, call)
        known[key] = seen, {name: counted[name] for name in drawing if name in counted}
    return known[key]


def _stops(case: Case, free: Sequence[Answer]) -> dict[str, Any]:
    """Return stops from the middle of the first answer; from the last one, for tokens."""
    stops: dict[str, Any] = {}
    text, ids = free[0].text.partition("\ufffd")[0], free[-1].ids
    if case["stop"] == "said" and text:
        stops["stop"] = (text[len(text) // 2 :][:2], _NEVER)
    if case["stop"] == "never":
        stops["stop"] = (text[-1:] + _NEVER,)
    if case["stop_tokens"] == "said" and ids:
        stops["stop_tokens"] = (ids[len(ids) // 2],)
    return stops
