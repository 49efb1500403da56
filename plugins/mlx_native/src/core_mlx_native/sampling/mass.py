"""The leading tokens of a distribution by total probability, without sorting.

A GPU would sort the complete vocabulary at each decoding step. Here the boundary is found digit by
digit of the tokens' keys, as in a radix sort, in three passes: the probability of each digit is
summed, and the digits before the boundary's digit lead. Sums are of integers, so they do not depend
on the order.

Shapes: G rows, V vocabulary.
"""

from __future__ import annotations

import mlx.core as mx

_UNIT = 2**30  # a probability of 1
_DIGITS = ((21, 11), (10, 11), (0, 10))  # of a key: shift and bits of each


def leading(keys: mx.array, probabilities: mx.array, limit: mx.array) -> mx.array:
    """Return which tokens have less than ``limit`` [G, 1] of the probability before them: [G, V].

    Tokens are in ascending order of their float32 ``keys``, equal ones by id. Probabilities are
    rounded to 2**-30. The first token always leads.
    """
    order = _ordered(keys)
    mass = mx.round(probabilities * _UNIT).astype(mx.uint32)
    room = mx.maximum(mx.round(mx.minimum(limit, 2.0) * _UNIT), 1).astype(mx.uint32)  # [G, 1]
    rows = mx.arange(len(keys))[:, None]
    at_border = mx.ones(keys.shape, mx.bool_)  # according to the digits so far
    leads = mx.zeros(keys.shape, mx.bool_)

    for shift, bits in _DIGITS:
        digits = (order >> shift) & (2**bits - 1)  # [G, V]
        totals = mx.zeros((len(keys), 2**bits), mx.uint32)
        totals = totals.at[rows, digits].add(mx.where(at_border, mass, 0))

        # The first digit that reaches the limit, else the last one.
        ends = mx.cumsum(totals, axis=-1)
        first = mx.argmax(ends >= room, axis=-1, keepdims=True)
        border = mx.where(ends[:, -1:] >= room, first, 2**bits - 1)  # [G, 1]
        room = room - mx.take_along_axis(ends - totals, border, axis=-1)
        leads = leads | (at_border & (digits < border))
        at_border = at_border & (digits == border)

    # Tokens with the boundary's key, by id.
    mass = mx.where(at_border, mass, 0)
    return leads | (at_border & (mx.cumsum(mass, axis=-1) - mass < room))


def _ordered(keys: mx.array) -> mx.array:
    """Return uint32 numbers in the order of the float32 keys; 0 and -0 are equal."""
    bits = (keys + 0.0).view(mx.uint32)
    return mx.where(bits >> 31, ~bits, bits | (1 << 31))
