"""Checks of a rotating context in every operation that generates, and of its penalty."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from core.errors import PromptTooLongError
from core.extensions import TokenPrompts
from core.protocols import Capability, TextModel
from core.types import Token
from core_conformance.checking.ask import PLAIN, SPEAKING, tokenizing
from core_conformance.checking.calls import unless_refused
from core_conformance.checking.check import check, leave_out, must, testable
from core_conformance.checking.rows import BATCHES, run, ways
from core_conformance.checking.subject import Subject

_SMALL, _BEYOND = 32, 12  # positions; tokens for which there is no place
_OF_A_CHAT = 64  # positions: a template may take more than the smaller context has
_LARGE = 1024  # positions: more would take too long to fill
_TOO_LARGE = "the context cannot be made small: use a model whose context can be filled"
_ENDS = "the model ends before the context is full: use one that continues"
_HUGE = 1e30  # a penalty beyond which a token that was seen does not come again
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


@check(
    "context.rotate-penalty",
    "repeat_penalty MUST cover the complete text, also the tokens that a rotating context dropped",
    Capability.ROTATE,
    Capability.GENERATE,
)
def penalty_covers_what_was_dropped(subject: Subject) -> None:
    with (
        unless_refused("repeat_penalty"),
        subject.loaded(context_len=_SMALL, context_overflow="rotate") as model,
    ):
        limit = model.info.context_length
        testable(limit <= _LARGE, _TOO_LARGE)
        count = 3 * limit
        tokens = list(model.generate(PLAIN[0], max_tokens=count, repeat_penalty=_HUGE))
        testable(len(tokens) > limit + _BEYOND, _ENDS)
        ids = [token.id for token in tokens]
        again = {
            id: (ids.index(id), place)
            for place, id in enumerate(ids)
            if id in ids[: max(0, place - limit)] and id not in ids[max(0, place - limit) : place]
        }
        # Seen tokens have logits around 0 or far below: one comes again only where none is above.
        shut = {id: places for id, places in again.items() if places[1] < count}
        must(
            len(shut) <= sum(id in ids[:place] for place, id in enumerate(ids)) // 2,
            f"with repeat_penalty={_HUGE:g} and a rotating context of {limit}, tokens come again "
            f"as soon as the context has dropped them: {shut}",
        )
