"""Counts of draws against the bounds that the oracle sets for their probabilities.

Chernoff's bound says how unlikely a count is: it holds for any number of draws, so nothing has to
be large, and bounds in place of exact probabilities make it smaller only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from core_conformance.checking.check import must
from core_conformance.checking.judging import SURE

Shares = Mapping[int, tuple[float, float]]
"""For each token that may be drawn, its least and its largest probability."""


def follow(what: str, drawn: Sequence[int | None], shares: Shares) -> None:
    """Raise `Violation` unless the draws may have these shares; None is a draw without a token.

    Each token is counted, and all tokens that are as likely at least.
    """
    for token in {token for token in drawn if token is not None}:
        must(token in shares, f"{what} drew the token {token}, which these options take away")
    for tokens, low, high in _sets(shares):
        count = sum(token in tokens for token in drawn)
        named = str(sorted(tokens)) if len(tokens) < 9 else f"{len(tokens)} tokens"
        must(
            surprise(count, len(drawn), low, high) < SURE,
            f"{what} drew {named} {count} times of {len(drawn)}; their probability is {low:.3f} to "
            f"{high:.3f}",
        )


def surprise(count: int, draws: int, low: float, high: float) -> float:
    """At least how unlikely the count is, as minus the natural logarithm of its probability.

    The probability of one draw lies between ``low`` and ``high`` (Chernoff, with the divergence of
    Kullback and Leibler).
    """
    seen = count / draws
    nearest = min(max(seen, low), high)
    return draws * (_part(seen, nearest) + _part(1 - seen, 1 - nearest))


def _part(seen: float, wanted: float) -> float:
    return 0.0 if seen <= 0 else math.inf if wanted <= 0 else seen * math.log(seen / wanted)


_TOLD = 24  # tokens, the likeliest: rarer ones tell nothing in so few draws


def _sets(shares: Shares) -> Iterator[tuple[frozenset[int], float, float]]:
    best = sorted(shares, key=lambda token: shares[token][1], reverse=True)
    whole = math.fsum(high for _, high in shares.values())
    low = high = 0.0
    for count, token in enumerate(best[:_TOLD], 1):
        yield frozenset((token,)), *shares[token]
        low, high = low + shares[token][0], high + shares[token][1]
        yield frozenset(best[:count]), max(low, 1.0 - (whole - high)), min(1.0, high)
