"""Checks of classify: one distribution per prompt, and nothing of the neighbours in it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from core.errors import EmptyPromptError
from core.protocols import Capability
from core.types import ClassifyResult
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import (
    EVEN,
    Answer,
    classify,
    evidence,
    generate,
    is_floats,
    is_token,
    logits,
    row_logits,
    sampled,
    token,
)
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.compare import (
    apart,
    later_steps,
    same_answers,
    same_draws,
    same_logits,
)
from core_conformance.checking.subject import Subject

_NO_LEAD = "the model gives every token the same logit: use one with weights"
_UNREAD = (
    "answers have no second token, or the tokenizer reads their text as other tokens: use another "
    "model"
)
_LABEL_FIELDS = ("label", "probabilities", "logprobs", "label_mass", "margin")


@check(
    "classify.results",
    "classify MUST return a ClassifyResult with a Token, and nothing that was not asked for",
    Capability.CLASSIFY,
)
def results_are_results(subject: Subject) -> None:
    result = classify(subject, ask.PLAIN[:1])[0]
    must(isinstance(result, ClassifyResult), f"classify() gave {result!r}, not a ClassifyResult")
    drawn, size = token(result), subject.model.info.vocab_size
    must(is_token(drawn, size), f"the token is {drawn!r}: an int id below {size}, and text")
    must(drawn.logprob is None, f"logprobs were not requested, but {drawn!r} has one")
    must(result.logits is None, "logits were not requested, but the result has them")
    filled = [name for name in _LABEL_FIELDS if getattr(result, name) is not None]
    must(not filled, f"no labels were given, and the result has {', '.join(filled)}")


@check(
    "classify.empty",
    "classify of no prompts MUST return an empty list",
    Capability.CLASSIFY,
)
def no_prompts_no_results(subject: Subject) -> None:
    results = subject.model.classify([])
    must(results == [], f"classify([]) returned {results!r}, not []")


@check(
    "classify.order",
    "Results MUST come in the order of the prompts, one each, duplicates and large batches too",
    Capability.CLASSIFY,
)
def order_is_kept(subject: Subject) -> None:
    kinds = (*ask.PLAIN, ask.LONG)
    alone = [classify(subject, [prompt], **evidence(subject))[0] for prompt in kinds]
    places = [(i * 29 + i // 7) % len(kinds) for i in range(64)]  # mixed, each about nine times
    results = classify(subject, [kinds[place] for place in places], **evidence(subject))
    pairs = [
        (sampled(alone[place], kinds[place]), sampled(result))
        for place, result in zip(places, results, strict=True)
    ]
    same_answers(subject, pairs, "prompts alone and in a mixed batch of 64")
    apart([left.ids for left, _ in pairs])


@check(
    "classify.argmax",
    "The greedy token MUST be the one with the highest logit",
    Capability.CLASSIFY,
    Capability.LOGITS,
)
def greedy_is_argmax(subject: Subject) -> None:
    results = classify(subject, ask.PLAIN, return_logits=True)
    for prompt, result in zip(ask.PLAIN, results, strict=True):
        row, drawn = row_logits(result), token(result)
        must(
            row[drawn.id] >= max(row) - subject.tolerance,
            f"{prompt!r}: the token {drawn!r} has the logit {row[drawn.id]:.5g}, and the highest "
            f"is {max(row):.5g}",
        )
    testable(any(map(_spread, map(row_logits, results))), _NO_LEAD)


@check(
    "classify.logits",
    "logits MUST be vocab_size float32 numbers in an array.array('f'), the model's own",
    Capability.CLASSIFY,
    Capability.LOGITS,
)
def logits_are_an_array(subject: Subject) -> None:
    size = subject.model.info.vocab_size
    plain = logits(subject, ask.PLAIN[:1])[0]
    must(
        is_floats(plain, size),
        f"logits are a {type(plain).__name__} of {len(plain)}, not an array('f') of {size}",
    )
    must(not any(map(math.isnan, plain)), "NaN among the logits")
    hot = classify(subject, ask.PLAIN[:1], return_logits=True, temperature=2.0, top_k=2)[0]
    same_logits(subject, plain, row_logits(hot), "logits with and without sampling options")


@check(
    "classify.tolerance",
    "logit_tolerance MUST be small against the spread of the logits: it excuses noise, not errors",
    Capability.CLASSIFY,
    Capability.LOGITS,
)
def tolerance_is_small(subject: Subject) -> None:
    spreads = [_spread(row) for row in logits(subject, ask.PLAIN)]
    testable(any(spreads), _NO_LEAD)
    tolerance, spread = subject.model.info.logit_tolerance, statistics.median(spreads)
    must(
        2 * tolerance < spread,
        f"info.logit_tolerance is {tolerance:g}, and a usual prompt's best logit lies {spread:.3g} "
        "above the middle one: with so large a tolerance any token might be the best",
    )


@check(
    "classify.neighbours",
    "Other rows of the batch MUST NOT change a prompt's logits: no content of a neighbour",
    Capability.CLASSIFY,
    Capability.LOGITS,
)
def neighbours_change_nothing(subject: Subject) -> None:
    prompt = ask.PLAIN[0]
    alone, others = logits(subject, [prompt])[0], []
    for neighbour in (*ask.HOSTILE, prompt[::-1]):
        rows = logits(subject, [neighbour, prompt, neighbour])
        same_logits(subject, alone, rows[1], f"{prompt!r} alone and between two of {neighbour!r}")
        others.append(rows[0])
    apart([alone, *others])


@check(
    "classify.padding",
    "Neighbours of other lengths MUST NOT change a prompt's logits: padding is not read",
    Capability.CLASSIFY,
    Capability.LOGITS,
)
def padding_changes_nothing(subject: Subject) -> None:
    ordered = [ask.SHORT, ask.PLAIN[2], ask.PLAIN[0], ask.LONG]
    alone = [logits(subject, [prompt])[0] for prompt in ordered]
    for order in ((0, 1, 2, 3), (3, 0, 2, 1)):
        rows = logits(subject, [ordered[place] for place in order])
        for place, row in zip(order, rows, strict=True):
            what = f"{ordered[place]!r} alone and among prompts of other lengths"
            same_logits(subject, alone[place], row, what)
    apart(alone)


@check(
    "classify.first-token",
    "classify MUST read the distribution that generate samples its first token from: greedy",
    Capability.CLASSIFY,
    Capability.GENERATE,
)
def is_generates_first_token(subject: Subject) -> None:
    results = classify(subject, ask.PLAIN, **evidence(subject))
    pairs = _first_tokens(subject, results)
    goes_on(subject, [left.tokens for left, _ in pairs])
    same_answers(subject, pairs, "generate's first token and classify's token")


@check(
    "classify.first-token-seeded",
    "With a seed, classify MUST draw the token that generate draws first",
    Capability.CLASSIFY,
    Capability.GENERATE,
    Capability.SEED,
)
def draws_generates_first_token(subject: Subject) -> None:
    compared = 0
    for seed in (0, 11, 12):
        options = EVEN | {"seed": seed}
        results = classify(subject, ask.PLAIN, **evidence(subject), **options)
        pairs = _first_tokens(subject, results, **options)
        what = f"generate's first token and classify's token, with seed={seed}"
        same_draws(subject, pairs, what)
        compared += len(pairs)
    if not compared:
        goes_on(subject, [generate(subject, prompt, 1).tokens for prompt in ask.PLAIN])


@check(
    "classify.later-tokens",
    "Every token of generate MUST be what classify says after the text so far",
    Capability.CLASSIFY,
    Capability.GENERATE,
    Capability.TOKENIZING,
)
def later_tokens_agree(subject: Subject) -> None:
    answers = {prompt: generate(subject, prompt, 8) for prompt in ask.PLAIN[:3]}
    goes_on(subject, [answer.tokens for answer in answers.values()])
    later = 0
    for prompt, answer in answers.items():
        pairs = later_steps(subject, prompt, answer, **evidence(subject))
        same_answers(subject, pairs, f"generate after {prompt!r}, against classify step by step")
        later += len(pairs[1:])  # the first token stands after the prompt itself
    testable(later > 0, _UNREAD)


@check(
    "classify.error-rows",
    "An error in one prompt MUST be its row's error; the other rows finish",
    Capability.CLASSIFY,
)
def errors_stay_in_their_rows(subject: Subject) -> None:
    good = ask.PLAIN
    alone = classify(subject, good, **evidence(subject))
    results = subject.model.classify([good[0], "", *good[1:]], **evidence(subject))

    must(
        len(results) == len(good) + 1,
        f"{len(good) + 1} prompts, one of them empty, gave {len(results)} results",
    )
    must(
        isinstance(results[1].error, EmptyPromptError) and results[1].token is None,
        f"an empty prompt's row has error={results[1].error!r} and token={results[1].token!r}",
    )

    # The good rows on either side are the same as without it.
    pairs = []
    for prompt, left, right in zip(good, alone, [results[0], *results[2:]], strict=True):
        must(right.error is None, f"a row next to an empty prompt failed: {right.error!r}")
        pairs.append((sampled(left, prompt), sampled(right)))
    same_answers(subject, pairs, "next to an empty prompt")


def _spread(row: Sequence[float]) -> float:
    finite = [value for value in row if math.isfinite(value)]
    return max(finite) - statistics.median(finite)


def _first_tokens(
    subject: Subject, results: Sequence[ClassifyResult], **options: Any
) -> list[tuple[Answer, Answer]]:
    """Pair generate's first token with classify's, except where generate ends with none to show."""
    answers = [generate(subject, prompt, 1, **options) for prompt in ask.PLAIN]
    return [
        (left, sampled(right))
        for left, right in zip(answers, results, strict=True)
        if left.tokens or left.finish_reason != "stop"
    ]
