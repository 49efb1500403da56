"""Locally typical sampling (arXiv 2202.00666), against the distribution that the logits tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core.protocols import Capability
from core.types import Token
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import SPEAKING, classify, generate, logits, seeds, token
from core_conformance.checking.check import Violation, check, must, testable
from core_conformance.checking.compare import difference
from core_conformance.checking.draws.typicality import Typicality
from core_conformance.checking.subject import Subject

_ASKED = ask.PLAIN[:4]
_SEEDS = 6
_WARM = 3.0  # so warm that a filter which is left out lets something through
_HOT = 10.0
_P = 0.3
_NOTHING_LEFT_OUT = (
    f"typical_p={_P:g} would leave every token: use a model some of whose tokens are clearly "
    "likelier than others"
)
_UNREAD = (
    "draws that should give one token vary, possibly at a tie, which is not visible: use a backend "
    "that declares LOGPROBS, or CLASSIFY and LOGITS"
)


@check(
    "sampling.typical-p",
    "typical_p=p MUST leave the smallest set of tokens, those whose surprisal is nearest to the "
    "entropy first, with a probability above p, at temperature 1",
    Capability.CLASSIFY,
    Capability.LOGITS,
)
def typical_p_excludes(subject: Subject) -> None:
    shut = False
    for prompt, typicality, drawn in _drawn(subject):
        _must_be_typical(prompt, typicality, drawn)
        shut = shut or typicality.shuts_out(_P)
    testable(shut, _NOTHING_LEFT_OUT)


@check(
    "sampling.typical-p-first",
    "typical_p MUST come before the other filters: to them, what it drops is impossible",
    Capability.CLASSIFY,
    Capability.LOGITS,
)
def typical_p_comes_first(subject: Subject) -> None:
    shut = False
    for prompt, typicality, drawn in _drawn(subject, top_k=1):
        _must_be_typical(prompt, typicality, drawn)
        shut = shut or typicality.shuts_out(_P)
        best, logit = typicality.best_kept(_P), typicality.row[drawn.id]
        must(
            logit >= best - typicality.slack,
            f"typical_p={_P:g} and top_k=1 gave {drawn!r} after {prompt!r}: its logit is "
            f"{logit:.4g}, and a token that typical_p leaves has {best:.4g}",
        )
    testable(shut, _NOTHING_LEFT_OUT)


@check(
    "sampling.typical-p-tiny",
    "A typical_p near 0 MUST leave one token, at any temperature",
    SPEAKING,
)
def tiny_typical_p_leaves_one(subject: Subject) -> None:
    pairs = []
    for prompt in _ASKED[:3]:
        first, *others = [
            generate(subject, prompt, 3, temperature=_HOT, typical_p=1e-6, **seed)
            for seed in seeds(subject, 3)
        ]
        pairs += [(first, other) for other in others]
    deviation = difference(subject, pairs, drawn=True)
    testable(
        deviation is None or subject.tolerance < 1e-3 or _margins_can_be_read(subject), _UNREAD
    )
    if deviation is not None:
        raise Violation(f"typical_p=1e-6 at temperature {_HOT:g}: {deviation.text}")
    goes_on(subject, [one.tokens for one, _ in pairs])


def _margins_can_be_read(subject: Subject) -> bool:
    return any(
        subject.declares(name)
        for name in (Capability.LOGPROBS, Capability.LOGITS, Capability.SCORING)
    )


def _must_be_typical(prompt: str, typicality: Typicality, drawn: Token) -> None:
    nearer = typicality.mass_before(drawn.id)
    must(
        nearer <= _P + typicality.slack,
        f"typical_p={_P:g} at temperature {_WARM:g} allowed {drawn!r} after {prompt!r}: "
        f"tokens with a probability of {nearer:.4g} are nearer to the entropy at temperature 1",
    )


def _drawn(subject: Subject, **filters: Any) -> Iterator[tuple[str, Typicality, Token]]:
    """Draw warm with ``typical_p``: yield each prompt, its typicality, and the token drawn."""
    slack = 2 * subject.tolerance + 1e-4
    measured = [Typicality.of(row, slack) for row in logits(subject, _ASKED)]
    for seed in seeds(subject, _SEEDS):
        options = {"temperature": _WARM, "typical_p": _P, **filters, **seed}
        for prompt, typicality, result in zip(
            _ASKED, measured, classify(subject, _ASKED, **options), strict=True
        ):
            yield prompt, typicality, token(result)
