"""Streaming detokenisation: each token's bytes, joined to characters as they become whole.

`tokenizers.decoders.DecodeStream` does not serve here (seen in 0.23.3): it raises when a stray
byte token follows a whole character, holds text that really ends in U+FFFD, and cannot be ended.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from tokenizers import Tokenizer as Library
from tokenizers.pre_tokenizers import ByteLevel

_ID_LIMIT = 2**32  # the library's ids are 32-bit numbers
_CHARACTER_BYTES = 4  # UTF-8's longest
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# As the library's decoders do: byte tokens give one U+FFFD for each byte of a broken character.
_PER_BYTE = {0xDC00 + byte: "\ufffd" for byte in range(0x80, 0x100)}


class TokenBytes:
    """The UTF-8 bytes of every token of a vocabulary; special and unknown tokens have none.

    Made once for a model; safe to use from several threads.
    """

    def __init__(self, library: Library) -> None:
        added = library.get_added_tokens_decoder().values()
        self._special = frozenset(token.content for token in added if token.special)
        self._token = library.id_to_token
        # Without a decoder, the library puts a space between two tokens.
        self._decode = library.decoder.decode if library.decoder else " ".join
        kinds = _decoder_kinds(library)
        self._letters = _byte_letters() if "ByteLevel" in kinds else {}
        self._fallback = "ByteFallback" in kinds
        self.errors = "surrogateescape" if self._fallback else "replace"

    def skips(self, token_id: int) -> bool:
        """Whether this is a special token, or no token at all."""
        return self._text(token_id) is None

    def __call__(self, token_id: int, *, first: bool) -> bytes:
        """Its bytes; ``first``: with nothing before it, where some decoders strip a space."""
        token = self._text(token_id)
        if token is None:
            return b""
        if self._letters:
            return self._level_bytes(token)
        byte = _BYTE_TOKEN.fullmatch(token) if self._fallback else None
        if byte:
            return bytes.fromhex(byte[1])
        text = self._decode([token]) if first else self._decode(["a", token])[1:]
        return text.encode()

    def _text(self, token_id: int) -> str | None:
        token = self._token(token_id) if 0 <= token_id < _ID_LIMIT else None
        return None if token in self._special else token

    def _level_bytes(self, token: str) -> bytes:
        try:
            return bytes(self._letters[letter] for letter in token)
        except KeyError:  # an added token, spelled as it is
            return token.encode()


class StreamDetokenizer:
    """A `core.text_stream.Detokenizer` that continues a prompt: one generation's state.

    Its texts, joined, are what ``decode(prompt + generated)`` adds to ``decode(prompt)``, special
    tokens left out. One exception: in a run of byte tokens (Gemma's ``<0xF0>``) that is not valid
    UTF-8, the library gives up the valid characters too, which here have been given out.
    """

    def __init__(self, token_bytes: TokenBytes, prompt: Sequence[int] = ()) -> None:
        self._bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(token_bytes.errors)
        self._first = True
        # A prompt of token ids may end inside a character.
        for token_id in reversed(list(islice(self._texts(reversed(prompt)), _CHARACTER_BYTES))):
            self.add(token_id)

    @property
    def incomplete(self) -> bool:
        """Whether the last token ended inside a character."""
        return bool(self._decoder.getstate()[0])

    def add(self, token_id: int) -> str:
        """The text that this token completes; never raises, whatever the id."""
        data = self._bytes(token_id, first=self._first)
        self._first = self._first and self._bytes.skips(token_id)
        return self._decoder.decode(data).translate(_PER_BYTE)

    def finish(self) -> str:
        """U+FFFD for the bytes of an incomplete character, else ""."""
        return self._decoder.decode(b"", final=True).translate(_PER_BYTE)

    def _texts(self, ids: Iterator[int]) -> Iterator[int]:
        return (token_id for token_id in ids if not self._bytes.skips(token_id))


def _decoder_kinds(library: Library) -> frozenset[str]:
    """The types of the decoder's steps: it has no attributes for them, only its JSON form."""
    if library.decoder is None:
        return frozenset()
    state = json.loads(library.decoder.__getstate__())
    return frozenset(step["type"] for step in state.get("decoders", [state]))


def _byte_letters() -> dict[str, int]:
    """The byte of each letter of the byte-level alphabet, which GPT-2's ``bytes_to_unicode`` made:
    printable bytes stand for themselves, the others for the letters from U+0100 on, in order.
    """
    letters = sorted(ByteLevel.alphabet())
    own = {letter: ord(letter) for letter in letters if ord(letter) < 0x100}
    others = sorted(set(range(0x100)) - set(own.values()))
    return own | dict(zip(letters[len(own) :], others, strict=True))
