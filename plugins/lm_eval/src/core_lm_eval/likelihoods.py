"""Log-likelihoods of token ids after contexts: many pairs in few calls, grouped by context.

A `Pair` has the token ids of a context and of the continuation to score.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core.extensions import TokenPrompts
from core.types import Score

Pair = tuple[list[int], list[int]]


def scores(model: TokenPrompts, pairs: Sequence[Pair], size: int, limit: int) -> Iterator[Score]:
    """Yield the score of each pair, in order.

    A call has about ``size`` pairs; pairs of one context are not divided.

    A pair of more than ``limit`` tokens, not counting the last, which is never read, loses the
    beginning of its context, as in lm-eval's HFLM. Raises the error of the first failed pair.
    """
    for start, end in _calls([context for context, _ in pairs], size):
        fitted = [_fitted(pair, limit) for pair in pairs[start:end]]
        heads, tails = [head for head, _ in fitted], [tail for _, tail in fitted]
        for score in model.score_tokens(heads, tails):
            yield score.raise_for_error()


def _calls(contexts: Sequence[list[int]], size: int) -> Iterator[tuple[int, int]]:
    """Yield where calls begin and end: each continues while the context is the same."""
    start = 0
    while start < len(contexts):
        end = min(start + size, len(contexts))
        while end < len(contexts) and contexts[end] == contexts[end - 1]:
            end += 1
        yield start, end
        start = end


def _fitted(pair: Pair, limit: int) -> Pair:
    context, scored = pair
    over = len(context) + len(scored) - 1 - limit
    if over <= 0:
        return pair
    # At least one token has to precede the scored ones.
    return context[min(over, len(context) - 1) :], scored
