"""A substitute for weights: every logit is a hash of all the tokens in the context.

So a change anywhere in what a row has read (padding, a neighbour, a dropped position) changes
what it says next. With other numbers it would be another model, and no less sound.
"""

from __future__ import annotations

import codecs
import hashlib
import math
import struct
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache

from core_conformance.reference.vocabulary import EOS, PIECES, VOCAB_SIZE, token_bytes

_FLOOR = -25.0
_LOG_2_TO_32 = 32 * math.log(2)


@lru_cache(maxsize=8192)  # the checks ask the same prompts alone, among others, and again
def raw_logits(seen: tuple[int, ...]) -> array[float]:
    """Return the logits after these ids, without an adapter."""
    noise = numbers(seen, VOCAB_SIZE)
    values = [floor + 2.0 * value for floor, value in zip(_base(seen), noise, strict=True)]
    return array("d", values)


@lru_cache(maxsize=8192)
def float32_logits(seen: tuple[int, ...]) -> array[float]:
    """Return the same as float32, as a model without an adapter gives them."""
    return array("f", raw_logits(seen))


def _base(ids: Sequence[int]) -> list[float]:
    """Return logits before noise: text may follow, and inside a character only the rest of it."""
    character = unfinished(ids)
    if not character:
        return _TEXT
    # 0xF0 begins no character with a second byte below 0x90 (RFC 3629, section 4).
    return _table(dict.fromkeys(range(0x90 if character == b"\xf0" else 0x80, 0xC0), -3.0))


def unfinished(ids: Sequence[int]) -> bytes:
    """Return the bytes of the character that these ids end in the middle of."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(b"".join(map(token_bytes, ids[-4:])))  # no character is longer than 4 bytes
    return decoder.getstate()[0]


def _table(values: Mapping[int, float]) -> list[float]:
    return [values.get(token, _FLOOR) for token in range(VOCAB_SIZE)]


_TEXT = _table(
    dict.fromkeys((*range(0x20, 0x7F), *range(256, 256 + len(PIECES))), -3.0)
    | dict.fromkeys((0xC3, 0xCE, 0xE2, 0xF0), -1.0)  # begin characters of 2, 2, 3 and 4 bytes
    | {EOS: -6.0}
)


def numbers(seen: Sequence[int], count: int) -> list[float]:
    """Return exponentially distributed numbers, the same for the same ids on every machine."""
    data = struct.pack(f"<{len(seen)}I", *seen)
    digest = hashlib.shake_128(data).digest(4 * count)
    words = struct.unpack(f"<{count}I", digest)
    return [_LOG_2_TO_32 - value for value in map(math.log, [word + 1 for word in words])]
