"""The bytes of each token, from which a stream's text is made as its characters become whole.

`tokenizers.decoders.DecodeStream` does not serve here (seen in 0.23.3): it raises when a stray
byte token follows a whole character, holds text that really ends in U+FFFD, and cannot be ended.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from tokenizers import Tokenizer as Library
from tokenizers.pre_tokenizers import ByteLevel

from core.text_stream import StreamDetokenizer

_ID_LIMIT = 2**32  # the library's ids are 32-bit numbers
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenBytes:
    """`core.text_stream.TokenBytes` of a vocabulary; special and unknown tokens have no text.

    Made once for a model; safe to use from several threads.
    """

    def __init__(self, library: Library) -> None:
        added = library.get_added_tokens_decoder().values()
        self._special = frozenset(token.content for token in added if token.special)
        self._token = library.id_to_token
        # Without a decoder, the library puts a space between two tokens.
        self._decode = library.decoder.decode if library.decoder else " ".join
        kinds = _decoder_kinds(library)
        self._letters = byte_letters() if reads_bytes(library) else {}
        self._fallback = "ByteFallback" in kinds

    def stream(self, prompt: Sequence[int] = ()) -> StreamDetokenizer:
        """The text of tokens that continue a prompt, as they come.

        Its texts, joined, are what ``decode(prompt + generated)`` adds to ``decode(prompt)``,
        special tokens left out. One exception: in a run of byte tokens (Gemma's ``<0xF0>``) that is
        not valid UTF-8, the library gives up the valid characters too, which here have been given
        out.
        """
        # As the library's decoders do: byte tokens give a U+FFFD for each byte that is no UTF-8.
        return StreamDetokenizer(self, prompt, per_byte=self._fallback)

    def __call__(self, token_id: int, first: bool) -> bytes | None:
        """The bytes of one token, or None if it has no text.

        ``first``: no text stands before it, where some decoders strip a space.
        """
        token = self._text(token_id)
        if token is None:
            return None
        if self._letters:
            return self._level_bytes(token)

        byte = _BYTE_TOKEN.fullmatch(token) if self._fallback else None
        if byte:
            return bytes.fromhex(byte[1])

        # Behind another token the decoder strips no space.
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


def reads_bytes(library: Library) -> bool:
    """Return True for a tokenizer whose tokens are spelled in letters that stand for bytes."""
    return "ByteLevel" in _decoder_kinds(library)


def _decoder_kinds(library: Library) -> frozenset[str]:
    """The types of the decoder's steps: it has no attributes for them, only its JSON form."""
    if library.decoder is None:
        return frozenset()
    state = json.loads(library.decoder.__getstate__())
    return frozenset(step["type"] for step in state.get("decoders", [state]))


def byte_letters() -> dict[str, int]:
    """The byte of each letter of the byte-level alphabet, which GPT-2's ``bytes_to_unicode`` made:
    printable bytes stand for themselves, the others for the letters from U+0100 on, in order.
    """
    letters = sorted(ByteLevel.alphabet())
    own = {letter: ord(letter) for letter in letters if ord(letter) < 0x100}
    others = sorted(set(range(0x100)) - set(own.values()))
    return own | dict(zip(letters[len(own) :], others, strict=True))
