"""Checks of batch_generate: every row is as if alone, whether or not generate is declared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from core.errors import EmptyPromptError
from core.extensions import BatchStreaming
from core.protocols import Capability
from core.types import BatchResult, Token
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import (
    EVEN,
    Answer,
    answer,
    batch,
    evidence,
    generate,
    is_id,
    is_token,
    speaks,
)
from core_conformance.checking.check import Violation, check, leave_out, must, testable
from core_conformance.checking.compare import apart, same_answers, same_draws, same_speech
from core_conformance.checking.subject import Subject
from core_conformance.checking.ties import at_a_tie

_MIXED = (ask.SHORT, ask.PLAIN[0], ask.LONG, ask.HOSTILE[1], ask.PLAIN[2])
_ASKED = ask.PLAIN[:3]
_LENGTH = 6


@check(
    "batch.results",
    "A BatchResult MUST hold core.Tokens, at most max_tokens, and say how it ended",
    Capability.BATCH_GENERATE,
)
def results_are_results(subject: Subject) -> None:
    limit, size = 3, subject.model.info.vocab_size
    speaks(subject, Capability.BATCH_GENERATE)

    results = subject.model.batch_generate(ask.PLAIN, max_tokens=limit)
    for result in results:
        must(isinstance(result, BatchResult), f"a result is {result!r}, not a BatchResult")
        must(result.error is None, f"a sound prompt has the error {result.error!r}")
        sound = _is_tuple_of_tokens(result.tokens, size)
        must(sound, f"tokens is {result.tokens!r}, not a tuple of core.Token")

        # A full row ended for its length, a shorter one by itself.
        count = len(result.tokens)
        wanted = "length" if count == limit else "stop"
        must(
            count <= limit and result.finish_reason == wanted,
            f"max_tokens={limit}, and a row has {count} tokens and finish_reason="
            f"{result.finish_reason!r}",
        )

    goes_on(subject, [result.tokens for result in results], Capability.BATCH_GENERATE)


@check(
    "batch.empty",
    "batch_generate of no prompts MUST return an empty list",
    Capability.BATCH_GENERATE,
)
def no_prompts_no_results(subject: Subject) -> None:
    results = subject.model.batch_generate([])
    must(results == [], f"batch_generate([]) returned {results!r}, not []")


@check(
    "batch.order",
    "Results MUST come in the order of the prompts, and not depend on it",
    Capability.BATCH_GENERATE,
)
def order_is_kept(subject: Subject) -> None:
    there = list(map(answer, batch(subject, _MIXED, 4), _MIXED))
    back = [answer(result) for result in batch(subject, _MIXED[::-1], 4)]
    pairs = list(zip(there, reversed(back), strict=True))
    same_speech(subject, pairs, "the same prompts in the other order")
    apart([left.ids for left, _ in pairs])


@check(
    "batch.equals-generate",
    "Every row MUST be what generate makes of its prompt, whatever its neighbours",
    Capability.BATCH_GENERATE,
    Capability.GENERATE,
)
def rows_equal_generate(subject: Subject) -> None:
    rows = _equals_generate(subject, _MIXED, 6)
    goes_on(subject, rows)
    apart(rows)


@check(
    "batch.many",
    "More prompts than a batch holds at once MUST all be answered, each as if it were alone",
    Capability.BATCH_GENERATE,
    Capability.PARALLEL,
)
def more_prompts_than_slots(subject: Subject) -> None:
    expected = [answer(batch(subject, [prompt], 3)[0], prompt) for prompt in _MIXED]
    with subject.loaded(parallel_slots=2) as model:
        results = model.batch_generate([*_MIXED, *_MIXED], max_tokens=3, **evidence(subject))
        count = 2 * len(_MIXED)
        must(len(results) == count, f"{count} prompts gave {len(results)} results")
        pairs = list(zip(expected * 2, map(answer, results), strict=True))
        same_speech(subject, pairs, "alone, and one of ten prompts in two slots")
    apart([left.ids for left, _ in pairs])


@check(
    "batch.seeded",
    "Row i of a batch with a seed MUST get what generate draws with that seed",
    Capability.BATCH_GENERATE,
    Capability.GENERATE,
    Capability.SEED,
)
def seeded_rows_equal_generate(subject: Subject) -> None:
    for seed in (0, 21):
        options = EVEN | {"seed": seed}
        rows = [answer(result) for result in batch(subject, _MIXED, 3, **options)]
        alone = [generate(subject, prompt, 3, **options) for prompt in _MIXED]
        pairs = list(zip(alone, rows, strict=True))
        same_draws(subject, pairs, f"generate alone and a row of a batch, both with seed={seed}")


@check(
    "batch.stop",
    "stop and stop_tokens MUST end each row on its own",
    Capability.BATCH_GENERATE,
    Capability.GENERATE,
)
def rows_stop_alone(subject: Subject) -> None:
    answers = [generate(subject, prompt, 6) for prompt in _MIXED]
    goes_on(subject, [answer.tokens for answer in answers])
    free = max(answers, key=lambda answer: len(answer.tokens))
    testable(bool(free.text), "the model produces no text to stop at: use another model")
    _equals_generate(subject, _MIXED, 6, stop=(free.text[len(free.text) // 2 :][:2],))
    _equals_generate(subject, _MIXED, 6, stop_tokens=free.ids[len(free.ids) // 2 :][:1])


@check(
    "batch.error-rows",
    "An error in one prompt MUST be its row's error; the other rows finish",
    Capability.BATCH_GENERATE,
)
def errors_stay_in_their_rows(subject: Subject) -> None:
    good = ask.PLAIN[:2]
    alone = list(map(answer, batch(subject, good, 3), good))
    first, bad, last = batch(subject, [good[0], "", good[1]], 3)
    must(
        isinstance(bad.error, EmptyPromptError) and bad.finish_reason == "error" and not bad.tokens,
        f"an empty prompt's row is {bad!r}: an EmptyPromptError, finish_reason 'error' and no "
        "tokens were expected",
    )
    pairs = list(zip(alone, (answer(first), answer(last)), strict=True))
    same_speech(subject, pairs, "next to an empty prompt")


@check(
    "batch.stream",
    "batch_stream MUST yield (row, token) pairs that join to what batch_generate returns",
    Capability.BATCH_STREAMING,
    Capability.BATCH_GENERATE,
)
def stream_joins_to_results(subject: Subject) -> None:
    whole = batch(subject, _MIXED, 4)
    rows: list[list[Token]] = [[] for _ in _MIXED]
    size = subject.model.info.vocab_size

    # Put the streamed tokens back into their rows.
    stream = cast("BatchStreaming", subject.model)
    for row, token in stream.batch_stream(_MIXED, max_tokens=4, **evidence(subject)):
        must(
            is_id(row, len(rows)) and is_token(token, size),
            f"batch_stream yielded {(row, token)!r}, not a row index and a core.Token",
        )
        rows[row].append(token)

    pairs = [
        (answer(result, prompt), Answer(tuple(tokens), None))
        for prompt, result, tokens in zip(_MIXED, whole, rows, strict=True)
    ]
    same_speech(subject, pairs, "batch_generate and batch_stream")
    apart([left.ids for left, _ in pairs])


def _is_tuple_of_tokens(value: object, size: int) -> bool:
    return isinstance(value, tuple) and all(is_token(token, size) for token in value)


def _equals_generate(
    subject: Subject, prompts: Sequence[str], max_tokens: int, **options: Any
) -> list[tuple[int, ...]]:
    rows = [answer(result) for result in batch(subject, prompts, max_tokens, **options)]
    alone = [generate(subject, prompt, max_tokens, **options) for prompt in prompts]

    same_answers(
        subject, list(zip(alone, rows, strict=True)), f"generate alone and in a batch {options}"
    )

    # Where the tokens agree, text and end must agree as well.
    for row, single in zip(rows, alone, strict=True):
        if row.ids == single.ids:
            must(
                (row.text, row.finish_reason) == (single.text, single.finish_reason),
                f"{options}: a row says {row.text!r} ({row.finish_reason}), and generate "
                f"{single.text!r} ({single.finish_reason})",
            )
    return [row.ids for row in rows]


@check(
    "batch.repeatable",
    "The same greedy batch MUST give the same rows again, whatever was asked in between",
    Capability.BATCH_GENERATE,
)
def batches_repeat(subject: Subject) -> None:
    first = _rows(batch(subject, _ASKED, 4))
    batch(subject, _ASKED[:1], 2, temperature=50.0)
    again = _rows(batch(subject, _ASKED, 4))
    same_speech(subject, list(zip(first, again, strict=True)), "the same batch, twice")


@check(
    "batch.stops",
    "A row MUST end before a stop string or a stop token, and no other row with it",
    Capability.BATCH_GENERATE,
)
def rows_stop(subject: Subject) -> None:
    free = _rows(batch(subject, _ASKED, _LENGTH))
    goes_on(subject, [row.tokens for row in free], Capability.BATCH_GENERATE)
    longest = max(free, key=lambda row: (len(row.text), len(row.ids)))
    stop, stop_id = longest.text[len(longest.text) // 2 :][:2], longest.ids[len(longest.ids) // 2]

    # At a string, from the middle of the longest text.
    if not stop:
        leave_out("stop strings, for the model says no text")
    if stop:
        for row, result in zip(free, batch(subject, _ASKED, _LENGTH, stop=stop), strict=True):
            expected = row.text.partition(stop)[0]
            _ends(subject, row, answer(result), f"stop={stop!r}", expected, stop in row.text)

    # At a token, from the middle of its ids.
    for row, result in zip(
        free, batch(subject, _ASKED, _LENGTH, stop_tokens=[stop_id]), strict=True
    ):
        comes = stop_id in row.ids
        ids = row.ids[: row.ids.index(stop_id)] if comes else row.ids
        _ends(subject, row, answer(result), f"stop_tokens=[{stop_id}]", ids, comes)


def _ends(
    subject: Subject,
    free: Answer,
    ended: Answer,
    option: str,
    expected: str | tuple[int, ...],
    comes: bool,
) -> None:
    """Check that one row ends as expected.

    Where other tokens came, which only a tie explains, nothing can be told about the row.
    """
    if ended.ids != free.ids[: len(ended.ids)]:
        if at_a_tie(subject, free, ended) is False:
            raise Violation(f"batch_generate with {option} gave {ended!r}, not {free!r}")
        return
    seen = ended.text if isinstance(expected, str) else ended.ids
    reason = "stop" if comes else free.finish_reason
    must(
        (seen, ended.finish_reason) == (expected, reason),
        f"batch_generate with {option} left {seen!r} ({ended.finish_reason}) of {free.text!r}; "
        f"{expected!r} and finish_reason {reason!r} were expected",
    )


def _rows(results: list[BatchResult]) -> list[Answer]:
    return [answer(row, prompt) for prompt, row in zip(_ASKED, results, strict=True)]
