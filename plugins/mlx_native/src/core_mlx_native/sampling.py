"""From logits to a token, for many rows at once.

Order: repeat penalty, top_p, min_p, top_k, temperature, draw. The filters look at the
distribution at temperature 1, as mlx-lm's and the contract's do.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import mlx.core as mx

from core.options import GenerateConfig

# Beyond these, float32 has only 0 and infinity to divide by.
_COLDEST, _HOTTEST = 1e-6, 1e30
_SMALLEST = 1e-30


def sample(
    logits: mx.array, prompts: Sequence[Sequence[int]], config: GenerateConfig, step: int = 0
) -> mx.array:
    """One token id per row: [B], from logits [B, vocabulary].

    With a seed, every row draws with the same noise, so that a row gets what it would get alone.
    """
    if config.repeat_penalty != 1.0:
        penalty = min(max(config.repeat_penalty, _SMALLEST), _HOTTEST)
        logits = penalise_repeats(logits, prompts, penalty)
    if config.temperature < _COLDEST:
        return mx.argmax(logits, axis=-1)
    logits = keep_top_p(logits, config.top_p)
    logits = keep_min_p(logits, config.min_p)
    logits = keep_top_k(logits, config.top_k)
    noise = _gumbel(logits, config.seed, step)
    temperature = min(config.temperature, _HOTTEST)
    return mx.argmax(logits / temperature + noise, axis=-1)  # the Gumbel-max trick


def log_total(logits: mx.array) -> mx.array:
    """The logarithm of the sum of exponentials over the last axis: [...], from [..., vocabulary].

    In blocks: on CPU, MLX adds one float32 after another, and over 262,144 tokens that is wrong by
    up to 1e-3.
    """
    size = logits.shape[-1]
    blocks = math.isqrt(size)
    short = -size % blocks
    if short:
        width = [(0, 0)] * (logits.ndim - 1) + [(0, short)]
        logits = mx.pad(logits, width, constant_values=-mx.inf)
    parts = mx.logsumexp(logits.reshape(*logits.shape[:-1], blocks, -1), axis=-1)
    return mx.logsumexp(parts, axis=-1)


def penalise_repeats(logits: mx.array, tokens: Sequence[Sequence[int]], penalty: float) -> mx.array:
    """Divide positive logits of tokens seen so far by the penalty, multiply negative ones."""
    rows = []
    for row, seen in zip(logits, tokens, strict=True):
        index = mx.array(sorted(set(seen)))
        values = row[index]
        row[index] = mx.where(values > 0, values / penalty, values * penalty)
        rows.append(row)
    return mx.stack(rows)


def keep_top_p(logits: mx.array, top_p: float) -> mx.array:
    """Nucleus filter: the smallest set of tokens whose probability reaches ``top_p``."""
    if top_p >= 1.0:
        return logits
    order = mx.argsort(-logits, axis=-1)
    probabilities = mx.take_along_axis(mx.softmax(logits, axis=-1), order, axis=-1)
    before = mx.cumsum(probabilities, axis=-1) - probabilities  # mass of all better tokens
    dropped = mx.put_along_axis(mx.zeros_like(before), order, before, axis=-1) >= max(
        top_p, _SMALLEST
    )
    return mx.where(dropped, -mx.inf, logits)


def keep_min_p(logits: mx.array, min_p: float) -> mx.array:
    """Drop tokens less than ``min_p`` times as likely as the best one (arXiv 2407.01082)."""
    if min_p <= 0.0:
        return logits
    probabilities = mx.softmax(logits, axis=-1)
    floor = probabilities.max(axis=-1, keepdims=True) * min_p
    return mx.where(probabilities < floor, -mx.inf, logits)


def keep_top_k(logits: mx.array, top_k: int) -> mx.array:
    """Keep exactly the ``top_k`` best tokens; 0 keeps all."""
    if top_k == 0 or top_k >= logits.shape[-1]:
        return logits
    worse = mx.argpartition(-logits, kth=top_k - 1, axis=-1)[..., top_k:]
    return mx.put_along_axis(logits, worse, mx.array(-mx.inf, logits.dtype), axis=-1)


def _gumbel(logits: mx.array, seed: int | None, step: int) -> mx.array:
    if seed is None:  # fresh noise for every row, and the global random state left alone
        return mx.random.gumbel(logits.shape, key=_key(int.from_bytes(os.urandom(8), "big"), 0))
    return mx.random.gumbel(logits.shape[-1:], key=_key(seed, step))  # [vocabulary]


def _key(seed: int, step: int) -> mx.array:
    mixed = (seed + step * 0x9E3779B97F4A7C15) % 2**64  # splitmix64's odd constant
    return mx.random.key(mixed)
