"""Counts of draws against the bounds that the oracle sets for their probabilities.

Chernoff's bound says how unlikely a count is: it holds for any number of draws, so nothing has to
be large, and bounds in place of exact probabilities make it smaller only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from core_conformance.checking.check import must
from core_conformance.checking.draws.judging import SURE

Shares = Mapping[int, tuple[float, float]]
"""For each token that may be drawn, its least and its largest probability."""

_TOLD = 24  # tokens, the likeliest: rarer ones show nothing in so few draws
_TILTS = (-0.9, -0.7, -0.5, -0.3, 0.3, 1.0, 2.0, 4.0)  # a wrong temperature T' of T: T / T' - 1


def follow(what: str, drawn: Sequence[int | None], shares: Shares) -> None:
    """Raise `Violation` unless the draws may have these shares; None is a draw without a token.

    Each token is counted, and all tokens that are as likely at least. A draw without a token was
    of an end token of unknown id: any of them may be of the tokens that are counted.
    """
    hidden = sum(token is None for token in drawn)
    if hidden == len(drawn):
        return
    for token in {token for token in drawn if token is not None}:
        must(token in shares, f"{what} drew the token {token}, which these options exclude")
    for tokens, low, high in _sets(shares):
        count = sum(token in tokens for token in drawn)
        named = str(sorted(tokens)) if len(tokens) < 9 else f"{len(tokens)} tokens"
        must(
            surprise(count, len(drawn), low, high, hidden) < SURE,
            f"{what} drew {named} {count} times of {len(drawn)}, {hidden} of them empty; "
            f"their probability is {low:.3f} to {high:.3f}",
        )


class Warmth:
    """A test of whether many draws are warmer or colder than expected, over all cases.

    The sum of ``score / temperature`` over all draws reveals the temperature. Chernoff's bound
    again, with the largest moment that the shares allow.
    """

    def __init__(self) -> None:
        self._sum = 0.0
        self._moments = [0.0] * len(_TILTS)

    def add(
        self, drawn: Sequence[int | None], shares: Shares, heights: Mapping[int, float]
    ) -> None:
        """Count the draws of one case. ``heights``: score / temperature of each token."""
        known = [heights[token] for token in drawn if token is not None]
        if len(known) < len(drawn):
            return  # the height of an unseen token is not known
        self._sum += math.fsum(known)
        for place, tilt in enumerate(_TILTS):
            moment = math.fsum(
                high * math.exp(tilt * heights[token])
                for token, (_, high) in shares.items()
                if high  # one that is impossible may lie infinitely deep
            )
            self._moments[place] += len(known) * math.log(moment)

    @property
    def surprise(self) -> float:
        """A lower bound on how unlikely that is, as in `surprise`."""
        tilts = zip(_TILTS, self._moments, strict=True)
        most = max(tilt * self._sum - moment for tilt, moment in tilts)
        return most - math.log(len(_TILTS))


def surprise(count: int, draws: int, low: float, high: float, hidden: int = 0) -> float:
    """Return a lower bound on minus the natural logarithm of the count's probability.

    The probability of one draw lies between ``low`` and ``high`` (Chernoff, with the divergence of
    Kullback and Leibler). So many draws as are ``hidden`` may have been counted as well.
    """
    seen = min(max(count, low * draws), count + hidden) / draws
    nearest = min(max(seen, low), high)
    return draws * (_part(seen, nearest) + _part(1 - seen, 1 - nearest))


def _part(seen: float, wanted: float) -> float:
    return 0.0 if seen <= 0 else math.inf if wanted <= 0 else seen * math.log(seen / wanted)


def _sets(shares: Shares) -> Iterator[tuple[frozenset[int], float, float]]:
    best = sorted(shares, key=lambda token: shares[token][1], reverse=True)
    whole = math.fsum(high for _, high in shares.values())
    low = high = 0.0
    for count, token in enumerate(best[:_TOLD], 1):
        yield frozenset((token,)), *shares[token]
        low, high = low + shares[token][0], high + shares[token][1]
        yield frozenset(best[:count]), max(low, 1.0 - (whole - high)), min(1.0, high)
