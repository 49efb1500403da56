"""Checks of many rows in one call: each is as if alone, however many stand beside it.

Engines read rows in blocks and refill slots, so they break one row behind a full block. From one
size to the next the rows come in the opposite order, so that no prompt keeps its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from core.extensions import BatchStreaming, ClassifyStreaming
from core.protocols import Capability, TextModel
from core.types import BatchResult, Score, Token
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import (
    Answer,
    answer,
    batch,
    classify,
    evidence,
    sampled,
    score,
    speaks,
)
from core_conformance.checking.budget import within
from core_conformance.checking.check import must
from core_conformance.checking.compare import near, same_rows
from core_conformance.checking.registry import check
from core_conformance.checking.sizes import rows
from core_conformance.checking.subject import Subject

Ask = Callable[[Sequence[str]], list[Answer]]
_BLOCKS = (8, 16, 32, 64, 128, 256)
_SIZES = (3, *(size + 1 for size in _BLOCKS), *_BLOCKS)  # one row too many tells most
_OF_BATCHES = (3, 9, 17, 33, 65, 8, 16, 32, 64)
_OF_SCORES = (2, *_SIZES[1 : 1 + len(_BLOCKS)])
_SLOTS = (2, 3, 1)
_SHARE = 4  # so many short rows take about as long as a pass
_FEW = 2  # tokens
_BEHIND = " and so"


@check(
    "rows.classify",
    "classify of any number of prompts MUST give each what it gets alone",
    Capability.CLASSIFY,
    broad=True,
)
def many_rows(subject: Subject) -> None:
    def ask(given: Sequence[str]) -> list[Answer]:
        found = classify(subject, given, **evidence(subject))
        return list(map(sampled, found, given))

    _sweep(subject, ask, ask, _SIZES, 1 / _SHARE, "prompts in one classify")


@check(
    "rows.stream",
    "classify_iter over any number of prompts MUST give each what classify gives it alone",
    Capability.CLASSIFY_STREAMING,
    Capability.CLASSIFY,
    broad=True,
)
def many_streamed_rows(subject: Subject) -> None:
    options = evidence(subject)

    def ask(given: Sequence[str]) -> list[Answer]:
        model = cast("ClassifyStreaming", subject.model)
        found = list(model.classify_iter(iter(given), **options))
        must(len(found) == len(given), f"{len(given)} prompts gave {len(found)} results")
        return list(map(sampled, found, given))

    def alone(given: Sequence[str]) -> list[Answer]:
        return list(map(sampled, classify(subject, given, **options), given))

    _sweep(subject, ask, alone, _SIZES, 1 / _SHARE, "prompts in one classify_iter")


@check(
    "rows.batch",
    "batch_generate of any number of prompts MUST give each what it gets alone",
    Capability.BATCH_GENERATE,
    broad=True,
)
def many_generated_rows(subject: Subject) -> None:
    def ask(given: Sequence[str]) -> list[Answer]:
        return list(map(answer, batch(subject, given, _FEW), given))

    _sweep(subject, ask, ask, _OF_BATCHES, _FEW / _SHARE, "prompts in one batch_generate")


@check(
    "rows.batch-stream",
    "batch_stream of any number of prompts MUST give each what batch_generate gives it alone",
    Capability.BATCH_STREAMING,
    Capability.BATCH_GENERATE,
    broad=True,
)
def many_rows_of_a_stream(subject: Subject) -> None:
    def ask(given: Sequence[str]) -> list[Answer]:
        found: list[list[Token]] = [[] for _ in given]
        model = cast("BatchStreaming", subject.model)
        for row, token in model.batch_stream(given, max_tokens=_FEW, **evidence(subject)):
            must(0 <= row < len(found), f"batch_stream of {len(found)} prompts gave row {row}")
            found[row].append(token)
        each = zip(given, found, strict=True)
        return [Answer(tuple(tokens), None, prompt) for prompt, tokens in each]

    def alone(given: Sequence[str]) -> list[Answer]:
        return list(map(answer, batch(subject, given, _FEW), given))

    _sweep(subject, ask, alone, _OF_BATCHES, _FEW / _SHARE, "prompts in one batch_stream")


@check(
    "rows.slots",
    "Rows up to three times the slots and one more MUST each be as if alone, whatever the slots",
    Capability.BATCH_GENERATE,
    Capability.PARALLEL,
    broad=True,
)
def rows_beyond_the_slots(subject: Subject) -> None:
    given = rows(3 * max(_SLOTS) + 1)
    alone = [answer(batch(subject, [prompt], _FEW + 1)[0], prompt) for prompt in given]
    goes_on(subject, [each.tokens for each in alone], Capability.BATCH_GENERATE)

    def cost(slots: int) -> float:
        return 8 + 6 * _FEW * slots  # for the load, and all sizes together

    for slots in within(subject, _SLOTS, cost, "parallel_slots"):
        with subject.loaded(parallel_slots=slots) as model:
            for size in (slots, slots + 1, 2 * slots, 2 * slots + 1, 3 * slots + 1):
                found = _generated(subject, model, given[:size])
                pairs = list(zip(alone, found, strict=False))
                same_rows(subject, pairs, f"alone, and one of {size} rows in {slots} slots")


@check(
    "rows.score",
    "score of any number of pairs MUST give each what it gets alone",
    Capability.SCORING,
    broad=True,
)
def many_scores(subject: Subject) -> None:
    known: dict[str, Score] = {}
    for size in within(subject, _OF_SCORES, lambda size: 3 + size / _SHARE, "pairs in one score"):
        given = rows(size)[::-1]
        for row in sorted({0, size // 2, size - 1}):
            known |= _scores(subject, given[row : row + 1])

        found = _scores(subject, given)
        for prompt in known.keys() & found.keys():
            one, other = known[prompt], found[prompt]
            must(
                near(subject, one.logprob, other.logprob, len(one.token_logprobs)),
                f"{_BEHIND!r} behind {prompt!r} scores {other.logprob:.5f} among {size} pairs, and "
                f"{one.logprob:.5f} alone or among fewer",
            )
        known = found | known


def _sweep(
    subject: Subject, ask: Ask, alone: Ask, sizes: Sequence[int], cost: float, what: str
) -> None:
    """Ask for ever more rows; hold each against itself alone, or in a call of fewer rows."""
    known: dict[str, Answer] = {}
    for size in within(subject, sizes, lambda size: 3 + size * cost, what):
        given = rows(size)[::-1]
        for row in sorted({0, size // 2, size - 1}):
            known[given[row]] = alone(given[row : row + 1])[0]

        found = ask(given)
        pairs = [(known[each.prompt], each) for each in found if each.prompt in known]
        same_rows(subject, pairs, f"alone or among fewer, and one of {size} {what}")
        known = {each.prompt: each for each in found} | known
    goes_on(subject, [each.tokens for each in known.values()])


def _generated(subject: Subject, model: TextModel, given: Sequence[str]) -> list[Answer]:
    speaks(subject, Capability.BATCH_GENERATE)
    options: dict[str, Any] = evidence(subject) | {"max_tokens": _FEW + 1}
    found: list[BatchResult] = model.batch_generate(given, **options)
    must(len(found) == len(given), f"{len(given)} prompts gave {len(found)} results")
    return list(map(answer, found, given))


def _scores(subject: Subject, given: Sequence[str]) -> dict[str, Score]:
    return dict(zip(given, score(subject, given, [_BEHIND] * len(given)), strict=True))
