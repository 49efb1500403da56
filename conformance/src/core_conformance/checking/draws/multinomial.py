"""A test of whether draws follow a distribution, with an exact bound on its false alarms.

Of n draws over k bins, n times the relative entropy of what was seen to what was expected (half of
the G statistic) reaches t with a probability of at most (e t / (k - 1))^(k - 1) e^-t, whatever n
and however small the bins (Agrawal, Finite-sample concentration of the multinomial in relative
entropy, IEEE Transactions on Information Theory 66(10), 2020, theorem I.2).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

ALARM = 1e-9  # the probability of a false alarm, of each test
_BINS = 10


def surprise(logprobs: Sequence[float], drawn: Sequence[int], slack: float) -> str:
    """Return, in words, how draws of tokens deviate; "" if they do not.

    Tokens are sorted into bins of about the same probability, once by rank and once by id.
    ``slack``: the most that the log-probabilities of the backend's own draws may be off.
    """
    impossible = [token for token in drawn if not math.exp(logprobs[token])]
    if impossible:
        return f"token {impossible[0]} was drawn, which has no probability"

    ids = range(len(logprobs))
    ranked = sorted(ids, key=lambda token: -logprobs[token])
    for order, name in ((ranked, "the likeliest first"), (ids, "by their ids")):
        bins, shares = _bins(logprobs, order)
        seen = Counter(bins[token] for token in drawn)
        entropy = relative_entropy(
            [seen[place] / len(drawn) for place in range(len(shares))], shares
        )
        if entropy > threshold(len(shares)) / len(drawn) + slack:
            counts = ", ".join(
                f"{seen[place]} for {share * len(drawn):.1f}" for place, share in enumerate(shares)
            )
            return f"tokens in {len(shares)} groups, {name}, came so often: {counts} expected"
    return ""


def relative_entropy(seen: Sequence[float], expected: Sequence[float]) -> float:
    """Return the relative entropy of shares to expected shares, in nats."""
    pairs = zip(seen, expected, strict=True)
    return math.fsum(one * math.log(one / other) for one, other in pairs if one)


def threshold(bins: int, alarm: float = ALARM) -> float:
    """Return the bound on n * relative entropy, exceeded with probability ``alarm`` at most."""
    free = bins - 1
    low, high = float(free), 1000.0 + 10.0 * free
    while high - low > 1e-6:
        middle = (low + high) / 2
        bound = free * (1.0 + math.log(middle / free)) - middle if free else -middle
        low, high = (middle, high) if bound > math.log(alarm) else (low, middle)
    return high


def _bins(logprobs: Sequence[float], order: Sequence[int]) -> tuple[dict[int, int], list[float]]:
    """Return the bin of each token that can be drawn, and the probability of each bin."""
    bins: dict[int, int] = {}
    shares = [0.0]
    for token in order:
        share = math.exp(logprobs[token])
        if not share:
            continue
        if shares[-1] >= 1.0 / _BINS or (shares[-1] + share >= 1.5 / _BINS and shares[-1]):
            shares.append(0.0)
        bins[token] = len(shares) - 1
        shares[-1] += share
    total = math.fsum(shares)
    return bins, [share / total for share in shares]
