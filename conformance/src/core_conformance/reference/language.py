"""The reference model's mathematics: every logit is a hash of all the tokens in the context.

So a change anywhere in what a row has read (padding, a neighbour, a dropped position) changes
what it says next.
"""

from __future__ import annotations

import hashlib
import math
import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from core_conformance.reference.vocabulary import EOS, PIECES, VOCAB_SIZE, unfinished

NUM_LAYERS, NUM_HEADS, HEAD_DIM = 2, 2, 4
LOGIT_TOLERANCE = 1e-5

_FLOOR = -25.0
_LOG_2_TO_32 = 32 * math.log(2)


@dataclass(frozen=True, slots=True)
class Language:
    """A language model of ``context_length`` positions; ``bias`` is what an adapter adds."""

    context_length: int
    bias: Mapping[int, float] = field(default_factory=dict)

    def logits(self, ids: Sequence[int]) -> array[float]:
        """The next token's logits: ``VOCAB_SIZE`` float32. Older positions are not seen."""
        values = _unbiased(tuple(ids[-self.context_length :]))[:]
        for token, bias in self.bias.items():
            values[token] += bias
        return array("f", values)

    def keys(self, ids: Sequence[int]) -> tuple[tuple[array[float], ...], ...]:
        """``keys[layer][head]``: one key per position, made from it and all positions before it."""
        return tuple(
            tuple(self._head(ids, layer, head) for head in range(NUM_HEADS))
            for layer in range(NUM_LAYERS)
        )

    def state(self, ids: Sequence[int], layer: int) -> array[float]:
        """The hidden state behind a layer at the last position; the embedding sees only its token.

        As long as the vocabulary is large.
        """
        seen = ids[-self.context_length :] if layer else ids[-1:]
        return array("f", _exponential((layer, NUM_HEADS, *seen), VOCAB_SIZE))

    def _head(self, ids: Sequence[int], layer: int, head: int) -> array[float]:
        values = array("f")
        for end in range(1, len(ids) + 1):
            values.extend(_exponential((layer, head, *ids[:end]), HEAD_DIM))
        return values


def log_softmax(logits: Sequence[float]) -> list[float]:
    """Natural-log probabilities over the vocabulary."""
    top = max(logits)
    total = top + math.log(math.fsum(map(math.exp, [value - top for value in logits])))
    return [value - total for value in logits]


@lru_cache(maxsize=8192)  # the checks ask the same prompts alone, among others, and again
def _unbiased(seen: tuple[int, ...]) -> array[float]:
    """The logits behind these ids, without an adapter."""
    noise = _exponential(seen, VOCAB_SIZE)
    values = [floor + 2.0 * value for floor, value in zip(_base(seen), noise, strict=True)]
    return array("d", values)


def _base(ids: Sequence[int]) -> list[float]:
    """Logits before noise: text may follow, and inside a character only the rest of it."""
    character = unfinished(ids)
    if not character:
        return _TEXT
    # 0xF0 begins no character with a second byte below 0x90 (RFC 3629, section 4).
    return _table(dict.fromkeys(range(0x90 if character == b"\xf0" else 0x80, 0xC0), -3.0))


def _table(values: Mapping[int, float]) -> list[float]:
    return [values.get(token, _FLOOR) for token in range(VOCAB_SIZE)]


_TEXT = _table(
    dict.fromkeys((*range(0x20, 0x7F), *range(256, 256 + len(PIECES))), -3.0)
    | dict.fromkeys((0xC3, 0xCE, 0xE2, 0xF0), -1.0)  # begin characters of 2, 2, 3 and 4 bytes
    | {EOS: -6.0}
)


def _exponential(seen: Sequence[int], count: int) -> list[float]:
    """Exponentially distributed numbers, the same for the same ids on every machine."""
    data = struct.pack(f"<{len(seen)}I", *seen)
    digest = hashlib.shake_128(data).digest(4 * count)
    words = struct.unpack(f"<{count}I", digest)
    return [_LOG_2_TO_32 - value for value in map(math.log, [word + 1 for word in words])]
