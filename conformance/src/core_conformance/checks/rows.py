"""Checks of many rows in one call: each is as if alone, however many are in the batch.

Engines read rows in blocks and refill slots, so they break one row after a full block. From one
size to the next the rows come in the opposite order, so that no prompt keeps its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from core.errors import EmptyPromptError
from core.extensions import BatchStreaming, ClassifyStreaming
from core.protocols import Capability, TextModel
from core.types import BatchResult, ClassifyResult, Score, Token
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import (
    EVEN,
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
from core_conformance.checking.check import check, must
from core_conformance.checking.compare import Pair, apart, near, same_draws, same_rows
from core_conformance.checking.recall import same_results, telling
from core_conformance.checking.sizes import rows
from core_conformance.checking.subject import Subject

Row = TypeVar("Row")
Failing = TypeVar("Failing", ClassifyResult, BatchResult)
Ask = Callable[[Sequence[str]], Sequence[Row]]
Same = Callable[[Sequence[str], Sequence[Row], Sequence[Row], str], None]
"""Raises unless two results of each of some prompts are the same; the last says what they are."""

_SIZES = (3, 17, 65, 257, 9, 33, 129, 16, 64, 256, 8, 32, 128)  # one too many shows most
_OF_BATCHES = (3, 17, 9, 33, 65, 16, 8, 32, 64)
_OF_SCORES = (2, 17, 65, 257, 9, 33, 129)
_TOLD = (3, 17, 65, 9, 33)
_DRAWN = (9, 17, 65)
_FAILING = (9, 33)
_EMPTY = (
    (),
    ("",),
    (),
    (),
    ("", ""),
    (),
    (),
    (),
)  # prompts before every eighth row, and so on
_AMONG = "without rows that fail, and among them"
_SLOTS = (2, 3, 1)
_ROWS = 8  # short ones, that take about as long as a pass
_MOST, _SOME, _LITTLE = 0.7, 0.4, 0.2  # of the passes for one check
_FEW = 2  # tokens
_BEHIND = " and so"


@check(
    "rows.classify",
    "classify of any number of prompts MUST give each what it gets alone",
    Capability.CLASSIFY,
    broad=True,
)
def many_rows(subject: Subject) -> None:
    def ask_for(given: Sequence[str]) -> list[Answer]:
        return _sampled(given, classify(subject, given, **evidence(subject)))

    what = "prompts in one classify"
    answers = _sweep(subject, ask_for, ask_for, _same_rows(subject), _SIZES, what, _MOST)
    apart([answer.ids for answer in answers])


@check(
    "rows.stream",
    "classify_iter over any number of prompts MUST give each what classify gives it alone",
    Capability.CLASSIFY_STREAMING,
    Capability.CLASSIFY,
    broad=True,
)
def many_streamed_rows(subject: Subject) -> None:
    options = evidence(subject)

    def ask_for(given: Sequence[str]) -> list[Answer]:
        model = cast("ClassifyStreaming", subject.model)
        results = list(model.classify_iter(iter(given), **options))
        must(len(results) == len(given), f"{len(given)} prompts gave {len(results)} results")
        return _sampled(given, results)

    def alone(given: Sequence[str]) -> list[Answer]:
        return _sampled(given, classify(subject, given, **options))

    what = "prompts in one classify_iter"
    results = _sweep(subject, ask_for, alone, _same_rows(subject), _SIZES, what)
    apart([result.ids for result in results])


@check(
    "rows.details",
    "A prompt's result from classify, its labels and logits too, MUST be the one it has alone",
    Capability.CLASSIFY,
    (Capability.LABELS, Capability.LOGITS),
    broad=True,
)
def all_details(subject: Subject) -> None:
    options = telling(subject)
    if subject.declares(Capability.LABELS):
        options["labels"] = ask.SEVERAL_WORDS

    def ask_for(given: Sequence[str]) -> list[ClassifyResult]:
        return classify(subject, given, **options)

    def same(
        given: Sequence[str],
        wanted: Sequence[ClassifyResult],
        results: Sequence[ClassifyResult],
        what: str,
    ) -> None:
        same_results(subject, given, wanted, results, what)

    _sweep(subject, ask_for, ask_for, same, _TOLD, "prompts with labels or logits in one classify")


@check(
    "rows.batch",
    "batch_generate of any number of prompts MUST give each what it gets alone",
    Capability.BATCH_GENERATE,
    broad=True,
)
def many_generated_rows(subject: Subject) -> None:
    def ask_for(given: Sequence[str]) -> list[Answer]:
        return list(map(answer, batch(subject, given, _FEW), given))

    what = "prompts in one batch_generate"
    answers = _sweep(subject, ask_for, ask_for, _same_rows(subject), _OF_BATCHES, what)
    goes_on(subject, [member.tokens for member in answers], Capability.BATCH_GENERATE)
    apart([member.ids for member in answers])


@check(
    "rows.batch-stream",
    "batch_stream of any number of prompts MUST give each what batch_generate gives it alone",
    Capability.BATCH_STREAMING,
    Capability.BATCH_GENERATE,
    broad=True,
)
def many_rows_of_a_stream(subject: Subject) -> None:
    def ask_for(given: Sequence[str]) -> list[Answer]:
        rows: list[list[Token]] = [[] for _ in given]
        model = cast("BatchStreaming", subject.model)
        for row, token in model.batch_stream(given, max_tokens=_FEW, **evidence(subject)):
            must(0 <= row < len(rows), f"batch_stream of {len(rows)} prompts gave row {row}")
            rows[row].append(token)
        pairs = zip(given, rows, strict=True)
        return [Answer(tuple(tokens), None, prompt) for prompt, tokens in pairs]

    def alone(given: Sequence[str]) -> list[Answer]:
        return list(map(answer, batch(subject, given, _FEW), given))

    what = "prompts in one batch_stream"
    answers = _sweep(subject, ask_for, alone, _same_rows(subject), _OF_BATCHES, what)
    goes_on(subject, [answer.tokens for answer in answers], Capability.BATCH_GENERATE)
    apart([answer.ids for answer in answers])


@check(
    "rows.score",
    "score of any number of pairs MUST give each what it gets alone",
    Capability.SCORING,
    broad=True,
)
def many_scores(subject: Subject) -> None:
    def ask_for(given: Sequence[str]) -> list[Score]:
        return score(subject, given, [_BEHIND] * len(given))

    def same(
        given: Sequence[str], wanted: Sequence[Score], scores: Sequence[Score], what: str
    ) -> None:
        for prompt, one, other in zip(given, wanted, scores, strict=True):
            must(
                near(subject, one.logprob, other.logprob, len(one.token_logprobs)),
                f"{what}: {_BEHIND!r} after {prompt!r} scores {one.logprob:.5f} and "
                f"{other.logprob:.5f}",
            )

    scores = _sweep(subject, ask_for, ask_for, same, _OF_SCORES, "pairs in one score", _MOST)
    apart([result.token_logprobs for result in scores])


@check(
    "rows.seeded",
    "With a seed, any row of any number MUST be drawn as it is alone",
    (Capability.CLASSIFY, Capability.BATCH_GENERATE),
    Capability.SEED,
    broad=True,
)
def seeded_rows(subject: Subject) -> None:
    options: dict[str, Any] = EVEN | {"seed": 5} | evidence(subject)

    def classified(given: Sequence[str]) -> list[Answer]:
        return _sampled(given, classify(subject, given, **options))

    def generated(given: Sequence[str]) -> list[Answer]:
        return list(map(answer, batch(subject, given, _FEW, **options), given))

    ways = {Capability.CLASSIFY: classified, Capability.BATCH_GENERATE: generated}
    asks = [ask for name, ask in ways.items() if subject.declares(name)]
    for size in within(subject, _DRAWN, lambda size: 8 + size, "seeded prompts", _LITTLE):
        given = rows(size)
        places = sorted({0, 8, size // 2, size - 1})
        for ask_for in asks:
            together = ask_for(given)
            pairs = [(ask_for([given[place]])[0], together[place]) for place in places]
            same_draws(subject, pairs, f"with {options}, alone and one of {size} prompts")


@check(
    "rows.slots",
    "Rows up to three times the slots and one more MUST each be as if alone, whatever the slots",
    Capability.BATCH_GENERATE,
    Capability.PARALLEL,
    broad=True,
)
def rows_beyond_the_slots(subject: Subject) -> None:
    given, alone = rows(3 * max(_SLOTS) + 1), list[Answer]()

    def cost(slots: int) -> float:
        return 20 + 8 * slots  # for the load, and all sizes together

    for slots in within(subject, _SLOTS, cost, "parallel_slots", _SOME):
        for prompt in given[len(alone) : 3 * slots + 1]:
            alone.append(answer(batch(subject, [prompt], _FEW + 1)[0], prompt))
        with subject.loaded(parallel_slots=slots) as model:
            for size in (slots, slots + 1, 3 * slots + 1):
                together = _generated(subject, model, given[:size])
                pairs = list(zip(alone, together, strict=False))
                same_rows(subject, pairs, f"alone, and one of {size} rows in {slots} slots")
    goes_on(subject, [member.tokens for member in alone], Capability.BATCH_GENERATE)


@check(
    "rows.errors",
    "Rows that fail, however many, MUST leave each other row in its place, as it is without them",
    (Capability.CLASSIFY, Capability.BATCH_GENERATE),
    broad=True,
)
def many_errors(subject: Subject) -> None:
    model, options = subject.model, evidence(subject)
    for size in within(subject, _FAILING, lambda size: 4 + size / 2, "rows with errors", _LITTLE):
        good = rows(size)
        given = [text for row, prompt in enumerate(good) for text in (*_EMPTY[row % 8], prompt)]
        if subject.declares(Capability.CLASSIFY):
            wanted = _sampled(good, classify(subject, good, **options))
            left = _without_errors(given, model.classify(given, **options))
            _same_rows(subject)(good, wanted, _sampled(good, left), f"classify, {_AMONG}")
        if subject.declares(Capability.BATCH_GENERATE):
            wanted = list(map(answer, batch(subject, good, _FEW), good))
            results = model.batch_generate(given, max_tokens=_FEW, **options)
            answers = list(map(answer, _without_errors(given, results), good))
            _same_rows(subject)(good, wanted, answers, f"batch_generate, {_AMONG}")


def _without_errors(given: Sequence[str], results: Sequence[Failing]) -> list[Failing]:
    """Return the results of the prompts that are not empty; the others have to have failed."""
    must(len(results) == len(given), f"{len(given)} prompts gave {len(results)} results")
    for row, (prompt, result) in enumerate(zip(given, results, strict=True)):
        must(
            isinstance(result.error, EmptyPromptError) == (not prompt),
            f"{prompt!r}, row {row} of {len(given)}, has the error {result.error!r}",
        )
    return [result for prompt, result in zip(given, results, strict=True) if prompt]


def _sweep(
    subject: Subject,
    ask_for: Ask[Row],
    alone: Ask[Row],
    same: Same[Row],
    sizes: Sequence[int],
    what: str,
    share: float = _SOME,
) -> Sequence[Row]:
    """Run growing numbers of rows; compare each with itself alone, or in a call of fewer rows.

    Returns what was found for each prompt.
    """
    known: dict[str, Row] = {}
    for size in within(subject, sizes, lambda size: 3 + size / _ROWS, what, share):
        given = rows(size)[::-1]
        for row in sorted({0, size // 2, size - 1}):
            known[given[row]] = alone([given[row]])[0]

        results = dict(zip(given, ask_for(given), strict=True))
        seen = [prompt for prompt in given if prompt in known]
        both = [known[prompt] for prompt in seen], [results[prompt] for prompt in seen]
        same(seen, *both, f"alone or among fewer, and one of {size} {what}")
        known = results | known
    return list(known.values())


def _same_rows(subject: Subject) -> Same[Answer]:
    def same(
        given: Sequence[str], wanted: Sequence[Answer], answers: Sequence[Answer], what: str
    ) -> None:
        pairs: list[Pair] = list(zip(wanted, answers, strict=True))
        same_rows(subject, pairs, what)

    return same


def _sampled(given: Sequence[str], results: Sequence[ClassifyResult]) -> list[Answer]:
    return [sampled(result, prompt) for result, prompt in zip(results, given, strict=True)]


def _generated(subject: Subject, model: TextModel, given: Sequence[str]) -> list[Answer]:
    speaks(subject, Capability.BATCH_GENERATE)
    options: dict[str, Any] = evidence(subject) | {"max_tokens": _FEW + 1}
    results: list[BatchResult] = model.batch_generate(given, **options)
    must(len(results) == len(given), f"{len(given)} prompts gave {len(results)} results")
    return list(map(answer, results, given))
