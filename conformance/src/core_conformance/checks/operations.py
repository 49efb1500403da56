"""Checks that every operation honours its options, against the operation it is a form of.

One clause over the table of ways: registered once for each way, with its base.
"""

from __future__ import annotations

from core.protocols import Capability
from core_conformance.checking import ask
from core_conformance.checking.ask import Answer, speaks
from core_conformance.checking.check import check
from core_conformance.checking.options import Operation, Options, honours
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.agreeing import gives, judge, wanted
from core_conformance.checking.ways.table import BY_NAME

_OF_IDS = (Capability.TOKEN_PROMPTS, Capability.TOKENIZING, Capability.GENERATE)
_AWAITED = (
    *(Capability.GENERATE, Capability.SUBMITTING, Capability.BATCH_GENERATE),
    *(Capability.BATCH_STREAMING, Capability.CLASSIFY, Capability.CLASSIFY_STREAMING),
    *("generate_tokens", "stream_tokens", Capability.CHAT),
)


def _honours(subject: Subject, name: str) -> None:
    way = BY_NAME[name]
    prompts = ask.PLAIN[:2] if way.generates else ask.PLAIN
    base, texts = judge(subject, way, prompts)

    def answers(max_tokens: int, options: Options) -> list[Answer]:
        request = way.options(subject, max_tokens) | options
        return [row.answer for row in gives(subject, way, subject.model, prompts, request)]

    def expected(max_tokens: int, options: Options) -> list[Answer]:
        request = way.options(subject, max_tokens) | options
        return [row.answer for row in wanted(subject, way, prompts, request, subject.model)]

    known = base.name if texts == [*prompts] else f"{base.name}(render_chat)"
    honours(
        subject,
        Operation(way.name, answers, way.generates, way.textless),
        Operation(known, expected, way.generates),
    )


@check(
    "chat.options",
    "chat MUST honour every option as generate(render_chat(messages)) does",
    Capability.CHAT,
    Capability.GENERATE,
    Capability.TOKENIZING,
)
def chat_honours_options(subject: Subject) -> None:
    speaks(subject, Capability.CHAT)
    _honours(subject, Capability.CHAT)


@check(
    "submitting.options",
    "submit MUST honour every option as generate does",
    Capability.SUBMITTING,
    Capability.GENERATE,
)
def submit_honours_options(subject: Subject) -> None:
    speaks(subject, Capability.SUBMITTING)
    _honours(subject, Capability.SUBMITTING)


@check(
    "batch.options",
    "batch_generate MUST honour every option in each row as generate does",
    Capability.BATCH_GENERATE,
    Capability.GENERATE,
)
def batches_honour_options(subject: Subject) -> None:
    _honours(subject, Capability.BATCH_GENERATE)


@check(
    "batch.stream-options",
    "batch_stream MUST honour every option as batch_generate does",
    Capability.BATCH_STREAMING,
    Capability.BATCH_GENERATE,
)
def batch_streams_honour_options(subject: Subject) -> None:
    _honours(subject, Capability.BATCH_STREAMING)


@check(
    "classify.stream-options",
    "classify_iter MUST honour every option of sampling as classify does",
    Capability.CLASSIFY_STREAMING,
    Capability.CLASSIFY,
)
def classify_iter_honours_options(subject: Subject) -> None:
    _honours(subject, Capability.CLASSIFY_STREAMING)


@check(
    "tokens.options",
    "generate_tokens and stream_tokens MUST honour every option as generate does",
    *_OF_IDS,
    broad=True,
)
def prompts_of_ids_honour_options(subject: Subject) -> None:
    for name in ("generate_tokens", "stream_tokens"):
        _honours(subject, name)


@check(
    "async.options",
    "Every operation that is awaited MUST honour every option as the one that is called does",
    Capability.ASYNCHRONOUS,
    Capability.GENERATE,
    broad=True,
)
def awaited_calls_honour_options(subject: Subject) -> None:
    for name in _AWAITED:
        if BY_NAME[f"awaited {name}"].declared(subject):
            _honours(subject, f"awaited {name}")
