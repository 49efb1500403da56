"""Checks that every operation honours its options, against the operation it is a form of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from core.extensions import BatchStreaming
from core.options import GenerateConfig
from core.protocols import Capability
from core.types import Message, Token
from core_conformance.checking import ask
from core_conformance.checking.ask import (
    Answer,
    answer,
    batch,
    evidence,
    generate,
    read,
    speaks,
    submitting,
    tokenizing,
)
from core_conformance.checking.check import check
from core_conformance.checking.options import Operation, Options, honours
from core_conformance.checking.subject import Subject

_ASKED = ask.PLAIN[:2]
_TURNS = tuple((Message("user", text),) for text in _ASKED)


@check(
    "chat.options",
    "chat MUST honour every option as generate(render_chat(messages)) does",
    Capability.CHAT,
    Capability.GENERATE,
    Capability.TOKENIZING,
)
def chat_honours_options(subject: Subject) -> None:
    speaks(subject, Capability.CHAT)
    rendered = [tokenizing(subject).render_chat(turns) for turns in _TURNS]

    def ask(max_tokens: int, options: Options) -> list[Answer]:
        request = {"max_tokens": max_tokens} | evidence(subject) | options
        return [read(subject.model.chat(turns, **request)) for turns in _TURNS]

    honours(subject, Operation("chat", ask), _generate(subject, rendered, "generate(render_chat)"))


@check(
    "submitting.options",
    "submit MUST honour every option as generate does",
    Capability.SUBMITTING,
    Capability.GENERATE,
)
def submit_honours_options(subject: Subject) -> None:
    speaks(subject, Capability.SUBMITTING)

    def ask(max_tokens: int, options: Options) -> list[Answer]:
        config = GenerateConfig(max_tokens=max_tokens, **evidence(subject) | options)
        streams = [submitting(subject).submit(prompt, config) for prompt in _ASKED]
        return [read(stream) for stream in streams]

    honours(subject, Operation("submit", ask), _generate(subject, _ASKED))


@check(
    "batch.options",
    "batch_generate MUST honour every option in each row as generate does",
    Capability.BATCH_GENERATE,
    Capability.GENERATE,
)
def batches_honour_options(subject: Subject) -> None:
    honours(subject, _batch(subject), _generate(subject, _ASKED))


@check(
    "batch.stream-options",
    "batch_stream MUST honour every option as batch_generate does",
    Capability.BATCH_STREAMING,
    Capability.BATCH_GENERATE,
)
def batch_streams_honour_options(subject: Subject) -> None:
    def ask(max_tokens: int, options: Options) -> list[Answer]:
        request = {"max_tokens": max_tokens} | evidence(subject) | options
        rows: list[list[Token]] = [[] for _ in _ASKED]
        for row, token in cast("BatchStreaming", subject.model).batch_stream(_ASKED, **request):
            rows[row].append(token)
        return [Answer(tuple(tokens), None) for tokens in rows]

    # Both are the same by then; what generate gives is known from other operations.
    generates = subject.declares(Capability.GENERATE)
    base = _generate(subject, _ASKED) if generates else _batch(subject)
    honours(subject, Operation("batch_stream", ask), base)


def _generate(subject: Subject, prompts: Sequence[str], name: str = "generate") -> Operation:
    def ask(max_tokens: int, options: Options) -> list[Answer]:
        return [generate(subject, prompt, max_tokens, **options) for prompt in prompts]

    return Operation(name, ask)


def _batch(subject: Subject) -> Operation:
    def ask(max_tokens: int, options: Options) -> list[Answer]:
        return [answer(row) for row in batch(subject, _ASKED, max_tokens, **options)]

    return Operation("batch_generate", ask)
