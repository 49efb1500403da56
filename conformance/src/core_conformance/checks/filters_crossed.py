"""Checks of filters after typical_p, which may drop the best token: cold, and with min_p."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from core.protocols import Capability
from core_conformance.checking import ask
from core_conformance.checking.ask import classify, logits, seeds, token
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.compare import log_softmax
from core_conformance.checking.draws.typicality import Typicality
from core_conformance.checking.subject import Subject

_ASKED = (*ask.PLAIN, ask.LONG, ask.QUESTION)
_SHARES = (0.1, 0.3, 0.02)  # of the probability that typical_p leaves
_COLD = (0.02, 0.001)
_SEEDS = 3
_KEPT = (
    "typical_p leaves the best token after every prompt tried: use a model with a clear best token"
)


@check(
    "sampling.typical-p-cold",
    "A temperature near 0 MUST choose among the tokens that typical_p leaves, which need not have "
    "the best one",
    Capability.CLASSIFY,
    Capability.LOGITS,
)
def cold_draws_are_typical(subject: Subject) -> None:
    dropped = 0
    for prompts, measured, share in _without_the_best(subject):
        for temperature in _COLD:
            options = {"temperature": temperature, "typical_p": share}
            results = classify(subject, prompts, **options)
            for prompt, typicality, result in zip(prompts, measured, results, strict=True):
                dropped += 1
                _must_be_left(prompt, typicality, share, token(result).id, options)
    testable(dropped > 0, _KEPT)


@check(
    "sampling.typical-p-min-p",
    "min_p MUST compare with the best of the tokens that typical_p leaves, not with one that it "
    "drops",
    Capability.CLASSIFY,
    Capability.LOGITS,
)
def min_p_compares_with_the_best_left(subject: Subject) -> None:
    compared = 0
    for prompts, measured, share in _without_the_best(subject):
        for number, (prompt, typicality) in enumerate(zip(prompts, measured, strict=True)):
            certain, _ = typicality.kept(share)
            second = _close_second(typicality, certain)
            if second is None:
                continue
            compared += 1
            # Both pass: they are about as likely as one another. A hot draw gives either.
            options = {"temperature": 1e4, "typical_p": share, "min_p": 0.5}
            drawn = {
                token(result).id
                for seed in seeds(subject, 24 + number % 2)
                for result in classify(subject, [prompt], **options, **seed)
            }
            must(
                len(drawn) > 1,
                f"{options} after {prompt!r} always gave the token {drawn}, of the tokens {second} "
                "that are about as likely as one another, and that typical_p leaves",
            )
    testable(compared > 0, _KEPT)


def _without_the_best(
    subject: Subject,
) -> Iterator[tuple[list[str], list[Typicality], float]]:
    """Yield the prompts after which typical_p certainly drops the best token."""
    slack = 2 * subject.tolerance + 1e-4
    measured = [Typicality.of(row, slack) for row in logits(subject, _ASKED)]
    for share in _SHARES:
        pairs = [
            (prompt, typicality)
            for prompt, typicality in zip(_ASKED, measured, strict=True)
            if typicality.mass_before(_best(typicality.row)) > share + slack
        ]
        if pairs:
            yield [prompt for prompt, _ in pairs], [one for _, one in pairs], share


def _best(row: Sequence[float]) -> int:
    return max(range(len(row)), key=row.__getitem__)


def _close_second(typicality: Typicality, certain: set[int]) -> list[int] | None:
    """Return the two likeliest tokens left, if min_p=0.5 certainly keeps both of them.

    The token that typical_p drops must be so much likelier that a comparison with it keeps none.
    """
    ranked = sorted(certain, key=typicality.row.__getitem__, reverse=True)
    if len(ranked) < 2:
        return None
    best, second = ranked[:2]
    row = typicality.row
    near = row[best] - row[second] < math.log(2) - typicality.slack
    far = max(row) - row[best] > math.log(2) + typicality.slack
    return [best, second] if near and far else None


def _must_be_left(
    prompt: str, typicality: Typicality, share: float, drawn: int, options: dict[str, Any]
) -> None:
    _, possible = typicality.kept(share)
    must(
        drawn in possible,
        f"{options} after {prompt!r} gave the token {drawn}, which typical_p drops: the "
        "temperature comes last, and only 0 is greedy",
    )


@check(
    "sampling.top-p-of-all",
    "top_p MUST measure the probabilities of all tokens, not of those that top_k leaves",
    Capability.CLASSIFY,
    Capability.LOGITS,
)
def top_p_measures_all_tokens(subject: Subject) -> None:
    slack, compared = 2 * subject.tolerance + 1e-4, 0
    for prompt, row in zip(_ASKED, logits(subject, _ASKED), strict=True):
        first, second = sorted(map(math.exp, log_softmax(row)), reverse=True)[:2]
        share = first / (first + second)
        if share - first <= 4 * slack:
            continue
        compared += 1
        # The best token alone falls short of this top_p, but not of the two that top_k leaves.
        options = {"temperature": 1e4, "top_k": 2, "top_p": (first + share) / 2}
        drawn = {
            token(result).id
            for seed in seeds(subject, 24)
            for result in classify(subject, [prompt], **options, **seed)
        }
        must(
            len(drawn) > 1,
            f"{options} after {prompt!r} always gave the token {drawn}: the best token has a "
            f"probability of {first:.4f} among all",
        )
    testable(compared > 0, "no two tokens have a part of the probability: use another model")
