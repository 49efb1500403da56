"""The reference model's mathematics: its logits after the tokens that it has read."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core_conformance.reference.vocabulary import VOCAB_SIZE
from core_conformance.reference.weights import float32_logits, numbers, raw_logits

NUM_LAYERS, NUM_HEADS, HEAD_DIM = 2, 3, 4  # all different: none passes for another
LOGIT_TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class Language:
    """A language model of ``context_length`` positions; ``bias`` is what an adapter adds."""

    context_length: int
    bias: Mapping[int, float]

    def logits(self, ids: Sequence[int]) -> array[float]:
        """Return the next token's logits: ``VOCAB_SIZE`` float32. Older positions are not seen."""
        seen = tuple(ids[-self.context_length :])
        if not self.bias:
            return float32_logits(seen)[:]
        values = raw_logits(seen)[:]
        for token, bias in self.bias.items():
            values[token] += bias
        return array("f", values)

    def keys(self, ids: Sequence[int]) -> tuple[tuple[array[float], ...], ...]:
        """Return ``keys[layer][head]``: one key per position, made from it and all before it."""
        return tuple(
            tuple(self._head(ids, layer, head) for head in range(NUM_HEADS))
            for layer in range(NUM_LAYERS)
        )

    def state(self, ids: Sequence[int], layer: int) -> array[float]:
        """Return the hidden state after a layer at the last position.

        The embedding sees only its token.

        As long as the vocabulary is large.
        """
        seen = ids if layer else ids[-1:]
        return array("f", numbers((layer, NUM_HEADS, *seen), VOCAB_SIZE))

    def _head(self, ids: Sequence[int], layer: int, head: int) -> array[float]:
        values = array("f")
        for end in range(1, len(ids) + 1):
            values.extend(numbers((layer, head, *ids[:end]), HEAD_DIM))
        return values


def log_softmax(logits: Sequence[float]) -> list[float]:
    """Return the natural-log probabilities over the vocabulary."""
    top = max(logits)
    total = top + math.log(sum(map(math.exp, [value - top for value in logits])))
    return [value - total for value in logits]
