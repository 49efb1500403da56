"""The reference model's tokenizer: bytes and some longer pieces; the longest that fits wins.

One piece ends in the first byte of a character, so that characters are split over tokens.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from core.kit.chat import RenderedPrompt

_WORDS = (
    " the| a| of| and| to| in| is| it| was| that| for| on| good| bad| not| we| you|the|ing|er|ed"
    "|es|ly|ion|ent|th|he|in|an|re|on|at|or|st|ll|ou|is|ow|ay|  |. |, |é|\n\n"
)
PIECES = (*(word.encode() for word in _WORDS.split("|")), b" \xe2")
SPECIAL = ("<s>", "</s>", "<system>", "<user>", "<assistant>")

_FIRST_SPECIAL = 256 + len(PIECES)
BOS = _FIRST_SPECIAL
EOS = _FIRST_SPECIAL + 1
VOCAB_SIZE = _FIRST_SPECIAL + len(SPECIAL)

_IDS = {bytes((byte,)): byte for byte in range(256)}
_IDS |= {piece: 256 + index for index, piece in enumerate(PIECES)}
# The longest that fits comes first; a byte that begins none is its own token.
_PIECE = re.compile(b"|".join(map(re.escape, sorted(PIECES, key=len, reverse=True))) + b"|.", re.S)
SPECIAL_TEXTS = {_FIRST_SPECIAL + index: text for index, text in enumerate(SPECIAL)}
_SPECIAL_IDS = {text: id for id, text in SPECIAL_TEXTS.items()}
_SPLIT = re.compile("(" + "|".join(map(re.escape, SPECIAL)) + ")")


def encode(text: str) -> list[int]:
    """Return ids with a leading BOS. Only a chat template can spell a special token."""
    if isinstance(text, RenderedPrompt):
        return [BOS, *_rendered(text)]
    return [BOS, *_pieces(text.encode())]


def encode_continued(prompt: str, continuation: str) -> list[int]:
    """Return the ids of a prompt with plain text after it."""
    if isinstance(prompt, RenderedPrompt):
        return encode(prompt.extended(continuation, SPECIAL))
    return encode(prompt + continuation)


def decode(ids: Sequence[int]) -> str:
    """Return the text of these ids, special tokens left out; U+FFFD for what is not a character."""
    return b"".join(map(token_bytes, ids)).decode(errors="replace")


def token_bytes(token_id: int) -> bytes:
    """Return the bytes of one token; special tokens have none."""
    if 0 <= token_id < 256:
        return bytes((token_id,))
    return PIECES[token_id - 256] if 256 <= token_id < _FIRST_SPECIAL else b""


class Detokenizer:
    """The `core.kit.text_stream.Detokenizer` of one generation."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def incomplete(self) -> bool:
        """True when the last token ended inside a character."""
        return bool(self._decoder.getstate()[0])

    def add(self, token_id: int) -> str:
        """Return the text that this token completes."""
        return self._decoder.decode(token_bytes(token_id))

    def finish(self) -> str:
        """Return U+FFFD for the bytes of an incomplete character, else ""."""
        return self._decoder.decode(b"", final=True)


def _rendered(prompt: RenderedPrompt) -> Iterator[int]:
    for part in _SPLIT.split(prompt.marked):
        if part in _SPECIAL_IDS:
            yield _SPECIAL_IDS[part]
        else:
            yield from _pieces(part.replace(prompt.marker, "").encode())


@lru_cache(maxsize=2048)
def _pieces(data: bytes) -> tuple[int, ...]:
    return tuple(map(_IDS.__getitem__, _PIECE.findall(data)))
