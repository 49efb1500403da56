"""The randomness of a draw: a function of a request's seed and its step, and of nothing else.

A row's noise is the same to the bit whatever else is in the batch, so a neighbour cannot change
what a request draws. The global random state is never touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import mlx.core as mx

_STRIDE = 0x9E3779B97F4A7C15  # splitmix64's odd constant: steps of one seed lie far apart


def uniforms(seeds: Sequence[int], steps: Sequence[int], size: int) -> mx.array:
    """Numbers in [0, 1), one row per seed and step, float32: [rows, size].

    ``seeds`` are whole numbers below 2**64. Rows with equal seed and step hold equal numbers, and
    are made once.
    """
    keys = [(seed + step * _STRIDE) % 2**64 for seed, step in zip(seeds, steps, strict=True)]
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    words = mx.array([(key >> 32, key & 0xFFFFFFFF) for key in places], mx.uint32)  # mx.random.key
    made = mx.vmap(partial(_uniform, size))(words)  # [distinct, size]
    if len(places) == len(keys):
        return made
    if len(places) == 1:
        return mx.broadcast_to(made, (len(keys), size))
    return made[mx.array([places[key] for key in keys])]


def gumbel(uniform: mx.array) -> mx.array:
    """Gumbel noise from uniform numbers, as ``mx.random.gumbel`` makes it.

    The index of the largest ``logit + noise`` is a draw from softmax(logits): Gumbel-max trick.
    """
    return -mx.log(-mx.log(uniform))


def _uniform(size: int, key: mx.array) -> mx.array:
    return mx.random.uniform(shape=(size,), key=key)
