"""Streaming detokenisation: each token's bytes, joined to characters as they become whole."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from itertools import islice

from core_llama_cpp.vocabulary import Vocabulary

_CHARACTER_BYTES = 4  # UTF-8's longest


class StreamDetokenizer:
    """A `core.text_stream.Detokenizer` that continues a prompt: one generation's state.

    Special tokens have no text. Bytes that are no UTF-8 become U+FFFD.
    """

    def __init__(self, vocabulary: Vocabulary, prompt: Sequence[int] = ()) -> None:
        self._piece = vocabulary.piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._strips = vocabulary.strips_space
        # A prompt of token ids may end inside a character.
        told = (token_id for token_id in reversed(prompt) if self._piece(token_id))
        for token_id in reversed(list(islice(told, _CHARACTER_BYTES))):
            self.add(token_id)

    @property
    def incomplete(self) -> bool:
        """Whether the last token ended inside a character."""
        return bool(self._decoder.getstate()[0])

    def add(self, token_id: int) -> str:
        """The text that this token completes; never raises for an id, whatever it is."""
        data = self._piece(token_id)
        if data and self._strips:  # the space that the tokenizer put before the text
            self._strips = False
            data = data.removeprefix(b" ")
        return self._decoder.decode(data)

    def finish(self) -> str:
        """U+FFFD for the bytes of an incomplete character, else ""."""
        return self._decoder.decode(b"", final=True)
