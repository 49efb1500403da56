"""A language model small enough to read: a recurrent network with made-up weights.

Its state after the tokens that it has read is `WIDTH` numbers, instead of a transformer's keys and
values. A state is never changed, so that rows with a shared prefix share one.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from operator import mul
from random import Random

from .tokenizer import VOCAB_SIZE, is_common

WIDTH = 8
START = (0.0,) * WIDTH
State = tuple[float, ...]

_KEPT = 0.6  # of the state, at each token
_LIKELY, _RARE = 2.0, -20.0  # logits before the state counts
_IN_KIND = dict.fromkeys("\u0430".encode(), 3.0)  # if the prompt's tokens are made likelier


class Language:
    """The weights, which follow from a seed, and what is computed with them."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self._embedding = [_vector(random) for _ in range(VOCAB_SIZE)]
        self._head = [_vector(random) for _ in range(VOCAB_SIZE)]
        self._bias = [
            _LIKELY if is_common(token) else _IN_KIND.get(token, _RARE)
            for token in range(VOCAB_SIZE)
        ]

    @property
    def weight_bytes(self) -> int:
        """Return the bytes of the weights: 8 per number, 0 after they were freed."""
        return 8 * (2 * WIDTH + 1) * len(self._embedding)

    def read(self, state: State, ids: Sequence[int]) -> State:
        """Return the state after these tokens."""
        for token in ids:
            new = self._embedding[token]
            state = tuple(math.tanh(_KEPT * a + b) for a, b in zip(state, new, strict=True))
        return state

    def logits(self, state: State) -> array[float]:
        """The next token's logits: `VOCAB_SIZE` float32."""
        rows = zip(self._bias, self._head, strict=True)
        return array("f", (bias + sum(map(mul, state, row)) for bias, row in rows))

    def free(self) -> None:
        """Drop the weights, although references to the model may remain."""
        self._embedding, self._head, self._bias = [], [], []


def _vector(random: Random) -> State:
    return tuple(random.gauss(0.0, 1.0) for _ in range(WIDTH))
