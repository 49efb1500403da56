"""top_p, min_p and top_k: which tokens may be drawn.

All three keep the best tokens up to some rank. So with the tokens in order, best first and equal
logits by id, each filter is a condition along that order. They look at the distribution at
temperature 1.

Shapes: G rows, V vocabulary, K candidates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import mlx.core as mx


@dataclass(frozen=True, slots=True)
class Limits:
    """The filters of G rows, each [G, 1]; a filter that is off keeps every token, exactly.

    ``uses_top_p`` and ``uses_min_p`` say whether any row has that filter on.
    """

    top_k: mx.array  # int32; off: larger than any vocabulary
    top_p: mx.array  # off: infinity
    log_min_p: mx.array  # off: -infinity
    uses_top_p: bool
    uses_min_p: bool


@dataclass(frozen=True, slots=True)
class Ranked:
    """Candidates in order: token ids, logits, and, for top_p, their probabilities: [G, K] each."""

    ids: mx.array
    logits: mx.array
    probabilities: mx.array | None


def probabilities_of(logits: mx.array) -> mx.array:
    """Softmax over the last axis, with a total that is exact for large vocabularies."""
    top = logits.max(axis=-1, keepdims=True)
    mass = mx.exp(logits - mx.where(mx.isinf(top), 0, top))
    return mass / in_blocks(mass).sum(axis=-1).sum(axis=-1)[..., None]


def rank(logits: mx.array, probabilities: mx.array | None, width: int) -> Ranked:
    """The ``width`` best tokens in order; ``width >= V`` puts the whole vocabulary in order.

    Among equal logits at the end of a shorter list, which ones are on it is not defined.
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


def kept(ranked: Ranked, limits: Limits) -> mx.array:
    """Which candidates pass all filters: [G, K]. The first one always does."""
    keep = mx.arange(ranked.ids.shape[-1]) < limits.top_k
    if ranked.probabilities is not None:
        keep &= ~_beyond_top_p(ranked.probabilities, limits)
    if limits.uses_min_p:
        keep &= ~below_min_p(ranked.logits, limits)
    return keep


def settled(ranked: Ranked, limits: Limits) -> mx.array:
    """Whether top_p ends within the candidates, so that no other token passes: [G, 1]."""
    if ranked.probabilities is None:
        return mx.zeros((ranked.ids.shape[0], 1), mx.bool_)
    better = ranked.logits > ranked.logits[:, -1:]  # else tokens off the list may come first
    return (better & _beyond_top_p(ranked.probabilities, limits)).any(axis=-1, keepdims=True)


def below_min_p(logits: mx.array, limits: Limits) -> mx.array:
    """Less than ``min_p`` times as likely as the best token (arXiv 2407.01082): like logits."""
    return logits < logits.max(axis=-1, keepdims=True) + limits.log_min_p


def in_blocks(values: mx.array, filler: float = 0.0) -> mx.array:
    """[..., n] as about sqrt(n) blocks: [..., blocks, size], the last one filled up.

    On CPU, MLX adds one float32 after another, and over 262,144 numbers that is wrong by up to
    1e-3; over a block and then over the blocks it is right.
    """
    size = values.shape[-1]
    blocks = math.isqrt(size)
    short = -size % blocks
    if short:
        width = [(0, 0)] * (values.ndim - 1) + [(0, short)]
        values = mx.pad(values, width, constant_values=filler)
    return values.reshape(*values.shape[:-1], blocks, -1)


def _beyond_top_p(probabilities: mx.array, limits: Limits) -> mx.array:
    """Tokens behind the smallest set whose probability reaches ``top_p``: the better ones do."""
    blocks = in_blocks(probabilities)
    within = mx.cumsum(blocks, axis=-1)
    totals = within[..., -1]
    before = mx.cumsum(totals, axis=-1) - totals  # the blocks in front
    running = (within + before[..., None]).reshape(probabilities.shape[0], -1)
    better = running[:, : probabilities.shape[1]] - probabilities
    return better >= limits.top_p


def _shortlist(logits: mx.array, width: int) -> mx.array:
    """Ids of the ``width`` best tokens, in no order: [G, width].

    They lie in the ``width`` spans with the largest maxima, or in what is left of the spans.
    """
    count = logits.shape[-1]
    span = math.isqrt(count // width)
    whole = count // span * span
    maxima = logits[:, :whole].reshape(logits.shape[0], -1, span).max(axis=-1)
    spans = mx.argpartition(-maxima, kth=width - 1, axis=-1)[:, :width]
    ids = (spans[..., None] * span + mx.arange(span, dtype=mx.uint32)).reshape(len(logits), -1)
    rest = mx.arange(whole, count, dtype=mx.uint32)
    ids = mx.concatenate([ids, mx.broadcast_to(rest, (len(logits), count - whole))], axis=-1)
    chosen = mx.take_along_axis(logits, ids, axis=-1)
    best = mx.argpartition(-chosen, kth=width - 1, axis=-1)[:, :width]
    return mx.take_along_axis(ids, best, axis=-1)
