"""The bytes of each token, from which a stream emits text once characters are complete.

`tokenizers.decoders.DecodeStream` is unsuitable (seen in 0.23.3): it raises if a stray byte token
follows a complete character, withholds text that really ends in U+FFFD, and cannot be finished.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from tokenizers import Tokenizer as Library
from tokenizers.pre_tokenizers import ByteLevel

from core.kit.text_stream import StreamDetokenizer

_ID_LIMIT = 2**32  # the library's ids are 32-bit numbers
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenBytes:
    """`core.kit.text_stream.TokenBytes` of a vocabulary; special and unknown tokens have no text.

    Created once per model; safe to use from several threads.
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
        """Return a stream of the text of tokens that continue a prompt.

        Its texts, joined, are what ``decode(prompt + generated)`` adds to ``decode(prompt)``,
        without special tokens. One exception: in a run of byte tokens (Gemma's ``<0xF0>``) that is
        not valid UTF-8, the library drops the valid characters too, which have already been emitted
        here.
        """
        # Like the library's decoders: each byte token that is not valid UTF-8 gives a U+FFFD.
        return StreamDetokenizer(self, prompt, per_byte=self._fallback)

    def __call__(self, token_id: int, first: bool) -> bytes | None:
        """Return the bytes of one token, or None if it has no text.

        ``first``: the token starts the text, where some decoders strip a space.
        """
        token = self._text(token_id)
        if token is None:
            return None
        if self._letters:
            return self._level_bytes(token)

        byte = _BYTE_TOKEN.fullmatch(token) if self._fallback else None
        if byte:
            return bytes.fromhex(byte[1])

        # After another token the decoder does not strip a space.
        text = self._decode([token]) if first else self._decode(["a", token])[1:]
        return text.encode()

    def _text(self, token_id: int) -> str | None:
        token = self._token(token_id) if 0 <= token_id < _ID_LIMIT else None
        return None if token in self._special else token

    def _level_bytes(self, token: str) -> bytes:
        try:
            return bytes(self._letters[letter] for letter in token)
        except KeyError:  # an added token, spelled literally
            return token.encode()


def reads_bytes(library: Library) -> bool:
    """Return True for a byte-level tokenizer, whose tokens are spelled in the byte alphabet."""
    return "ByteLevel" in _decoder_kinds(library)


def _decoder_kinds(library: Library) -> frozenset[str]:
    """Return the types of the decoder's steps.

    The library exposes them only in JSON.
    """
    if library.decoder is None:
        return frozenset()
    state = json.loads(library.decoder.__getstate__())
    return frozenset(step["type"] for step in state.get("decoders", [state]))


def byte_letters() -> dict[str, int]:
    """Return the byte of each letter in the byte-level alphabet.

    It is that of GPT-2's ``bytes_to_unicode``: printable bytes are their own letters, the others
    have the letters from U+0100 on, in order.
    """
    letters = sorted(ByteLevel.alphabet())
    own = {letter: ord(letter) for letter in letters if ord(letter) < 0x100}
    others = sorted(set(range(0x100)) - set(own.values()))
    return own | dict(zip(letters[len(own) :], others, strict=True))
