"""The values that the parts of the network exchange.

Shapes: B rows, T tokens, H hidden size, D head size, S positions in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, cast

import mlx.core as mx

from core_runtime.checkpoint.config import ModelConfig

Mask = mx.array | Literal["causal"] | None

KeysValues = tuple[mx.array, mx.array]  # each [B, kv heads, S, D], keys after rope


class Past(Protocol):
    """The keys and values that one layer has seen before."""

    def update(self, keys: mx.array, values: mx.array) -> KeysValues:
        """Add the keys and values of T new tokens, and return all that these may see."""
        ...


class Buffer(Past, Protocol):
    """A past in its own writable buffers, each [B, kv heads, capacity, D]."""

    keys: mx.array
    values: mx.array

    def places(self, size: int) -> tuple[slice, slice]:
        """Return the columns of the running pass over ``size`` tokens, and of all that it sees."""
        ...


def buffer_of(past: Past | None) -> Buffer | None:
    """Return the past, if it is a `Buffer`."""
    return cast(Buffer, past) if hasattr(past, "places") else None


class Matrix(Protocol):
    """A weight (rows, columns), dense or quantised."""

    def product(self, x: mx.array) -> mx.array:
        """Return ``x @ weight.T``: [..., rows], from [..., columns]."""
        ...

    def rows(self, index: mx.array) -> mx.array:
        """Return the rows with these indices [...]: [..., columns]."""
        ...

    def back(self, y: mx.array) -> mx.array:
        """Return ``y @ weight``: [..., columns], from [..., rows]. The gradient of `product`."""
        ...

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        ...


class LMHead(Protocol):
    """The part of a decoder that turns hidden states into logits."""

    @property
    def config(self) -> ModelConfig:
        """The configuration, with the cap of the logits."""
        ...

    @property
    def norm(self) -> Callable[[mx.array], mx.array]:
        """The norm before the matrix."""
        ...

    @property
    def head_matrix(self) -> Matrix:
        """The LM head's weight (vocabulary, H), which may be the embedding."""
        ...

    @property
    def head_bias(self) -> mx.array | None:
        """The LM head's bias [vocabulary], if it has one."""
        ...

    def logits(self, hidden: mx.array) -> mx.array:
        """Return next-token logits, float32, for hidden states [..., H]: [..., vocabulary]."""
        ...
