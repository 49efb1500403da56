"""Checks of a rotating context in every operation that generates, and of its penalty."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from core.errors import PromptTooLongError
from core.extensions import TokenPrompts
from core.protocols import Capability, TextModel
from core.types import Token
from core_conformance.checking.ask import PLAIN, SPEAKING, tokenizing
from core_conformance.checking.check import check, leave_out, must, testable
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.rows import BATCHES, run
from core_conformance.checking.ways.table import ways

_SMALL, _BEYOND = 32, 12  # positions; tokens for which there is no place
_OF_A_CHAT = 64  # positions: a template may take more than the smaller context has
_LARGE = 1024  # positions: more would take too long to fill
_TOO_LARGE = "the context cannot be made small: use a model whose context can be filled"
_ENDS = "the model ends before the context is full: use one that continues"
_HOT: dict[str, Any] = {"temperature": 1e4}  # a model that ends at once continues then


@check(
    "context.rotate-operations",
    'With context_overflow="rotate" every operation that generates MUST continue past the context',
    Capability.ROTATE,
    (*SPEAKING, *BATCHES, Capability.TOKEN_PROMPTS),
    broad=True,
)
def every_operation_goes_on(subject: Subject) -> None:
    with subject.loaded(context_len=_OF_A_CHAT, context_overflow="rotate") as model:
        limit = model.info.context_length
        testable(limit <= _LARGE, _TOO_LARGE)
        answers = dict(_answers(subject, model, limit + _BEYOND))
    counts = {name: len(tokens) for name, (tokens, reason) in answers.items() if reason != "stop"}
    testable(bool(counts), _ENDS)
    short = {name: count for name, count in counts.items() if count < limit + _BEYOND}
    must(
        not short,
        f"with a rotating context of {limit}, max_tokens={limit + _BEYOND} gave fewer tokens "
        f"without an end: {short}",
    )


def _answers(
    subject: Subject, model: TextModel, count: int
) -> Iterator[tuple[str, tuple[tuple[Token, ...] | tuple[int, ...], str | None]]]:
    for way in ways(subject, *SPEAKING, *BATCHES):
        try:
            [row] = run(subject, way, model, PLAIN[:1], count, **_HOT)
        except PromptTooLongError as error:
            leave_out(f"{way.name}, whose template has {error.length} tokens")
            continue
        # The pairs of batch_stream have no reason: an answer that is shorter may have ended.
        reason = row.answer.finish_reason
        ended = "stop" if way.name is Capability.BATCH_STREAMING and reason is None else reason
        yield way.name, (row.answer.tokens, ended)
    if subject.declares(Capability.TOKEN_PROMPTS, Capability.TOKENIZING):
        ids, by_ids = tokenizing(subject).encode(PLAIN[0]), cast("TokenPrompts", model)
        [sequence] = by_ids.generate_tokens([ids], max_tokens=count, **_HOT)
        yield "generate_tokens", (sequence.ids[len(ids) :], sequence.finish_reason)
        stream = by_ids.stream_tokens(ids, max_tokens=count, **_HOT)
        yield "stream_tokens", (tuple(stream), stream.finish_reason)
