"""The four filters of tokens to draw from, and the penalty on repeated tokens.

typical_p comes first: it sets the logits of dropped tokens to -infinity. The three others keep the
best tokens up to some rank, so each is a condition along the order of tokens, best first and equal
logits by id. All filters use the distribution at temperature 1.

The penalty is stored as one number per row and token: the row's penalty if the token was seen, else
1. A new token is one scattered write, which does not wait for the token's value.

Shapes: G rows, V vocabulary, K candidates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from core_mlx_native.sampling.mass import leading

# Beyond these, float32 has only 0 and infinity to divide by.
_WEAKEST, _STRONGEST = 1e-30, 1e30


@dataclass(frozen=True, slots=True)
class Limits:
    """The filters of G rows, each [G, 1]; a disabled filter keeps every token.

    ``uses_top_p`` etc.: whether any row enables that filter.
    """

    top_k: mx.array  # int32; off: larger than any vocabulary
    top_p: mx.array  # off: infinity
    log_min_p: mx.array  # off: -infinity
    typical_p: mx.array  # off: infinity
    uses_top_p: bool
    uses_min_p: bool
    uses_typical_p: bool


@dataclass(frozen=True, slots=True)
class Ranked:
    """Ranked candidates: token ids, logits, and, for top_p, probabilities: [G, K] each."""

    ids: mx.array
    logits: mx.array
    probabilities: mx.array | None


def probabilities_of(logits: mx.array) -> mx.array:
    """Return softmax over the last axis, with an accurate total for large vocabularies."""
    top = logits.max(axis=-1, keepdims=True)
    mass = mx.exp(logits - mx.where(mx.isinf(top), 0, top))
    return mass / in_blocks(mass).sum(axis=-1).sum(axis=-1)[..., None]


def typical(logits: mx.array, limits: Limits, by_mass: bool = False) -> mx.array:
    """Return the logits [G, V], with -infinity for the tokens dropped by typical_p.

    Locally typical sampling (arXiv 2202.00666) by llama.cpp's definition: the smallest set of
    tokens whose probability exceeds ``typical_p``, taken by distance of surprisal from entropy, at
    equal distance by id. ``by_mass``: without sorting (`mass`).
    """
    probabilities = probabilities_of(logits)

    # Distance of each surprisal from its mean; an impossible token adds nothing to the mean.
    surprisals = -mx.log(probabilities)
    shares = mx.where(probabilities > 0, probabilities * surprisals, 0)
    entropy = in_blocks(shares).sum(axis=-1).sum(axis=-1)[..., None]
    distances = mx.abs(surprisals - entropy)
    if by_mass:
        return mx.where(leading(distances, probabilities, limits.typical_p), logits, -mx.inf)
    order = mx.argsort(distances, axis=-1)  # stable

    # The first one is always kept, because nothing precedes it.
    within = _before(mx.take_along_axis(probabilities, order, axis=-1)) <= limits.typical_p
    keep = mx.put_along_axis(mx.zeros(logits.shape, mx.bool_), order, within, axis=-1)
    return mx.where(keep, logits, -mx.inf)


def nucleus(logits: mx.array, limits: Limits) -> mx.array:
    """Return the logits [G, V], with -infinity for the tokens dropped by top_p, without sorting.

    See `rank` and `passing` for the variant that sorts.
    """
    keep = leading(-logits, probabilities_of(logits), limits.top_p)
    return mx.where(keep, logits, -mx.inf)


def rank(logits: mx.array, probabilities: mx.array | None, width: int) -> Ranked:
    """Rank the ``width`` best tokens; ``width >= V`` sorts the complete vocabulary.

    It is undefined which of equal logits at the end of a shorter list are included.
    """
    if width >= logits.shape[-1]:
        ids = mx.argsort(-logits, axis=-1)  # stable
        chosen = mx.take_along_axis(logits, ids, axis=-1)
    else:
        ids = mx.sort(_shortlist(logits, width), axis=-1)
        chosen = mx.take_along_axis(logits, ids, axis=-1)
        order = mx.argsort(-chosen, axis=-1)
        ids = mx.take_along_axis(ids, order, axis=-1)
        chosen = mx.take_along_axis(chosen, order, axis=-1)

    if probabilities is None:
        return Ranked(ids, chosen, None)
    return Ranked(ids, chosen, mx.take_along_axis(probabilities, ids, axis=-1))


def passing(ranked: Ranked, limits: Limits) -> mx.array:
    """Return whether each candidate passes all filters: [G, K]. The first one always does."""
    keep = mx.arange(ranked.ids.shape[-1]) < limits.top_k
    if ranked.probabilities is not None:
        keep &= ~_beyond_top_p(ranked.probabilities, limits)
    if limits.uses_min_p:
        keep &= ~below_min_p(ranked.logits, limits)
    return keep


def nucleus_is_inside(ranked: Ranked, limits: Limits) -> mx.array:
    """Return whether each row's top_p set ends within the candidates: [G, 1].

    If so, tokens beyond them do not pass.
    """
    if ranked.probabilities is None:
        return mx.zeros((ranked.ids.shape[0], 1), mx.bool_)
    better = ranked.logits > ranked.logits[:, -1:]  # else tokens outside the list may come first
    return (better & _beyond_top_p(ranked.probabilities, limits)).any(axis=-1, keepdims=True)


def below_min_p(logits: mx.array, limits: Limits) -> mx.array:
    """Return which tokens are less than ``min_p`` times as likely as the best one, like logits.

    See arXiv 2407.01082.
    """
    # The difference of close logits is exact; a sum with a large one is rounded.
    return logits - logits.max(axis=-1, keepdims=True) < limits.log_min_p


def in_blocks(values: mx.array, filler: float = 0.0) -> mx.array:
    """Split [..., n] into about sqrt(n) blocks, the last one padded: [..., blocks, size].

    On a CPU, MLX adds float32 sequentially, which over 262,144 numbers is off by up to 1e-3;
    summing blocks and then their sums is accurate.
    """
    size = values.shape[-1]
    blocks = math.isqrt(size)
    short = -size % blocks
    if short:
        width = [(0, 0)] * (values.ndim - 1) + [(0, short)]
        values = mx.pad(values, width, constant_values=filler)
    return values.reshape(*values.shape[:-1], blocks, -1)


def _beyond_top_p(probabilities: mx.array, limits: Limits) -> mx.array:
    """Return which tokens come after the smallest set whose probability reaches ``top_p``."""
    return _before(probabilities) >= limits.top_p


def _before(probabilities: mx.array) -> mx.array:
    """Return the sum of the probabilities before each one, along the last axis: [G, K]."""
    blocks = in_blocks(probabilities)
    within = mx.cumsum(blocks, axis=-1)
    totals = within[..., -1]
    before = mx.cumsum(totals, axis=-1) - totals  # the preceding blocks
    running = (within + before[..., None]).reshape(probabilities.shape[0], -1)
    return running[:, : probabilities.shape[1]] - probabilities


def _shortlist(logits: mx.array, width: int) -> mx.array:
    """Return the ids of the ``width`` best tokens, unordered: [G, width].

    They are in the ``width`` spans with the largest maxima, or in the remainder after the spans.
    """
    count = logits.shape[-1]
    span = math.isqrt(count // width)
    whole = count // span * span

    # The best tokens' spans are those with the best maxima.
    maxima = logits[:, :whole].reshape(logits.shape[0], -1, span).max(axis=-1)
    spans = mx.argpartition(-maxima, kth=width - 1, axis=-1)[:, :width]

    # All tokens of these spans, and of the remainder after the last complete span.
    ids = (spans[..., None] * span + mx.arange(span, dtype=mx.uint32)).reshape(len(logits), -1)
    rest = mx.arange(whole, count, dtype=mx.uint32)
    ids = mx.concatenate([ids, mx.broadcast_to(rest, (len(logits), count - whole))], axis=-1)

    # The best among them.
    chosen = mx.take_along_axis(logits, ids, axis=-1)
    best = mx.argpartition(-chosen, kth=width - 1, axis=-1)[:, :width]
    return mx.take_along_axis(ids, best, axis=-1)


@dataclass(frozen=True, slots=True)
class Repeats:
    """The tokens seen by the B rows of a batch whose rows change.

    Immutable: every method returns a new one. ``divisors`` is [B, vocabulary] float32, or None (to
    save memory) while no row has a penalty.
    """

    penalties: tuple[float, ...]
    vocab_size: int
    divisors: mx.array | None

    @classmethod
    def of(
        cls, prompts: Sequence[Sequence[int]], penalties: Sequence[float], vocab_size: int
    ) -> Repeats:
        """Make rows whose prompts count as seen. Token ids are below ``vocab_size``."""
        clamped = tuple(min(max(penalty, _WEAKEST), _STRONGEST) for penalty in penalties)
        if all(penalty == 1.0 for penalty in clamped):
            return cls(clamped, vocab_size, None)

        seen = [set(prompt) for prompt in prompts]
        rows = [row for row, tokens in enumerate(seen) for _ in tokens]
        tokens = [token for tokens in seen for token in tokens]
        return cls(clamped, vocab_size, None)._mark(
            mx.array(rows, mx.uint32), mx.array(tokens, mx.uint32)
        )

    def penalise(self, logits: mx.array) -> mx.array:
        """Divide positive logits [B, vocabulary] of seen tokens by the penalty, multiply others."""
        if self.divisors is None:
            return logits
        # Several times faster on a CPU than mx.where, and exact if the divisor is 1.
        return mx.maximum(logits, 0) / self.divisors + mx.minimum(logits, 0) * self.divisors

    def after(self, tokens: mx.array) -> Repeats:
        """Return the repeats after each row drew its token: [B], evaluated or not."""
        return self if self.divisors is None else self._mark(mx.arange(len(self.penalties)), tokens)

    def take(self, rows: Sequence[int]) -> Repeats:
        """Return the given rows, in the given order; a row may be taken more than once."""
        penalties = tuple(self.penalties[row] for row in rows)
        if self.divisors is None or all(penalty == 1.0 for penalty in penalties):
            return Repeats(penalties, self.vocab_size, None)
        return Repeats(penalties, self.vocab_size, self.divisors[mx.array(list(rows), mx.uint32)])

    def joined(self, other: Repeats) -> Repeats:
        """Return these rows, then the other's."""
        penalties = self.penalties + other.penalties
        if self.divisors is None and other.divisors is None:
            return Repeats(penalties, self.vocab_size, None)
        both = mx.concatenate([self._table(), other._table()])
        return Repeats(penalties, self.vocab_size, both)

    def _mark(self, rows: mx.array, tokens: mx.array) -> Repeats:
        divisors = self._table()
        divisors[rows, tokens] = mx.array(self.penalties)[rows]
        return Repeats(self.penalties, self.vocab_size, divisors)

    def _table(self) -> mx.array:
        """Return a writable copy of the divisors."""
        if self.divisors is None:
            return mx.ones((len(self.penalties), self.vocab_size))
        return mx.array(self.divisors)
