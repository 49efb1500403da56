"""A model's vocabulary in llama.cpp; safe to use from several threads.

It is in the model's memory, so running calls are counted, and the model is freed after the last.
No lock is used: a signal handler may close the model that it has interrupted, and a fork may happen
at any moment.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

from core.errors import ModelClosedError, RequestError
from core.kit.chat import RenderedPrompt
from core.kit.support import unicode_error

_PIECE_BYTES = 64  # most tokens are shorter
_LONGEST = 2**31 - 1024  # llama.cpp counts a text's bytes in 32 bits
_SENTENCEPIECE, _BPE = 1, 2  # LLAMA_VOCAB_TYPE
_HIDDEN, _STRIPPING = 1 | 8, 128 | 256  # attributes: unknown or control; strips adjacent spaces
_STRIPS_AFTER = 256
_C_SPACE = " \t\n\v\f\r"  # what C's isspace() takes


class Vocabulary:
    """A vocabulary; ``pointer`` is a ``llama_vocab``. ``special``: control token ids by text.

    ``size``: number of tokens; ``bos``: the id that begins every prompt, or None; ``ends``: the ids
    that end a generation, by ``llama_vocab_is_eog``.
    """

    def __init__(self, lib: ModuleType, pointer: Any) -> None:
        self._lib, self._pointer = lib, pointer
        self._asking: set[object] = set()
        self._last: list[Callable[[], None]] = []
        self._pieces: dict[int, bytes] = {}
        self.size = int(lib.llama_vocab_n_tokens(pointer))
        adds_bos = bool(lib.llama_vocab_get_add_bos(pointer))
        self.bos = self._id(lib.llama_vocab_bos) if adds_bos else None
        self.special, self._stripping = self._marks()
        # For every token: a file may name a normal one as the end of a turn.
        is_eog = lib.llama_vocab_is_eog
        self.ends = frozenset(i for i in range(self.size) if is_eog(pointer, i))
        self._strips_space = self._first_piece_of("a").startswith(b" ")

    def close(self, last: Callable[[], None]) -> None:
        """Close the vocabulary: later calls raise `core.ModelClosedError`.

        ``last`` frees the model: now, or on the thread of the last running call.
        """
        self._last.append(last)
        self._pointer = None
        self._free_unused()

    def tokenize(self, text: str) -> list[int]:
        """Return the tokens of a literal text, without BOS.

        Raises `core.RequestError` for lone surrogates, TypeError if it is not a string.
        """
        data = _utf8(text)
        buffer = np.empty(len(data) + 8, np.int32)
        count = self._tokenize(data, buffer)
        if count < 0:  # more tokens than bytes: minus their number
            buffer = np.empty(-count, np.int32)
            count = self._tokenize(data, buffer)
        ids: list[int] = buffer[:count].tolist()
        return ids

    def stripped(self, prompt: RenderedPrompt) -> RenderedPrompt:
        """Return a prompt without white space after the special tokens that strip it (Phi-3's)."""
        if self._stripping is None:
            return prompt
        return RenderedPrompt(self._stripping.sub(r"\1", prompt.marked), prompt.marker)

    def fewest_tokens(self, text: str) -> int:
        """Return a lower bound of the tokens of a text; 0 if unknown."""
        longest, dropped = self._measures
        data = text.encode(errors="surrogatepass").translate(None, dropped)
        return -(-len(data) // longest) if longest else 0

    @cached_property
    def _measures(self) -> tuple[int, bytes]:
        """The most bytes that a token represents, and the bytes that no token represents.

        The first is 0 if a text may be shortened in other ways. Reads every token.
        """
        read = self._lib.llama_vocab_get_text
        with self._vocabulary() as vocab:
            kind = self._lib.llama_vocab_type(vocab)
            if self._strips_beside or kind not in (_SENTENCEPIECE, _BPE):
                return 0, b""
            texts = {read(vocab, token_id) for token_id in range(self.size)}
        dropped = _without_token(texts) if kind == _BPE else b""
        return max(map(len, texts), default=0), dropped

    def piece(self, token_id: int) -> bytes:
        """Return a token's UTF-8 bytes, maybe a part of a character; empty for special tokens."""
        piece = self._pieces.get(token_id)
        if piece is None:
            piece = self._piece(token_id) if 0 <= token_id < self.size else b""
            if piece or token_id < self.size:
                self._pieces[token_id] = piece
        return piece

    def text_bytes(self, token_id: int, first: bool) -> bytes | None:
        """Return a token's bytes, as `core.kit.text_stream.TokenBytes`; None if it has none.

        With ``first``, they come without the space that the tokenizer prepended to the text.
        """
        data = self.piece(token_id)
        if not data:
            return None
        return data.removeprefix(b" ") if first and self._strips_space else data

    def text(self, name: str) -> str | None:
        """Return the text of ``bos``, ``eos`` or ``pad``; None if the model lacks the token."""
        token_id = self._id(getattr(self._lib, f"llama_vocab_{name}"))
        return None if token_id is None else self._text(token_id)

    def _tokenize(self, data: bytes, buffer: Any) -> int:
        pointer = ctypes.cast(buffer.ctypes.data, ctypes.POINTER(ctypes.c_int32))
        with self._vocabulary() as vocab:
            return int(
                self._lib.llama_tokenize(vocab, data, len(data), pointer, len(buffer), False, False)
            )

    def _piece(self, token_id: int) -> bytes:
        size = _PIECE_BYTES
        while True:
            buffer = ctypes.create_string_buffer(size)
            with self._vocabulary() as vocab:
                count = self._lib.llama_token_to_piece(vocab, token_id, buffer, size, 0, False)
            if count >= 0:
                return buffer.raw[:count]
            size = -count

    def _first_piece_of(self, text: str) -> bytes:
        return self.piece(next(iter(self.tokenize(text)), -1))

    def _marks(self) -> tuple[dict[str, int], re.Pattern[str] | None]:
        """Return the control tokens by their texts, and a pattern for space that some strip.

        A BOS that the file does not call a control token is one: it is added by its id.
        """
        lib, vocab = self._lib, self._pointer
        attr, normal, control = lib.llama_vocab_get_attr, 4, lib.LLAMA_TOKEN_ATTR_CONTROL
        odd = {i: kind for i in range(self.size) if (kind := attr(vocab, i)) != normal}
        special = {self._text(i): i for i, kind in odd.items() if kind & control}
        if self.bos is not None and len(text := self._text(self.bos)) > 1:
            special.setdefault(text, self.bos)

        stripping = (kind for kind in odd.values() if not kind & _HIDDEN)
        self._strips_beside = any(kind & _STRIPPING for kind in stripping)
        strict = [text for text, i in special.items() if odd.get(i, 0) & _STRIPS_AFTER]
        return special, _followed_by_space(strict)

    def _id(self, ask: Any) -> int | None:
        with self._vocabulary() as vocab:
            token_id = int(ask(vocab))
        return token_id if 0 <= token_id < self.size else None

    def _text(self, token_id: int) -> str:
        return self._raw_text(token_id).decode(errors="replace")

    def _raw_text(self, token_id: int) -> bytes:
        with self._vocabulary() as vocab:
            text: bytes = self._lib.llama_vocab_get_text(vocab, token_id)
        return text

    @contextmanager
    def _vocabulary(self) -> Iterator[Any]:
        """The ``llama_vocab``, which is there until this block ends. One operation each on a set
        and a list, which no other thread divides: first counted, then looked whether it is closed.
        """
        me = object()
        try:
            self._asking.add(me)
            vocab = self._pointer
            if vocab is None:
                raise ModelClosedError
            yield vocab
        finally:
            self._asking.discard(me)
            if self._pointer is None:
                self._free_unused()

    def _free_unused(self) -> None:
        if not self._asking:
            with suppress(IndexError):  # another thread was first
                self._last.pop()()


def _followed_by_space(texts: Collection[str]) -> re.Pattern[str] | None:
    """Return a pattern for white space after one of these texts, the longest that is there."""
    if not texts:
        return None
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})[{_C_SPACE}]+")


def _without_token(texts: set[bytes]) -> bytes:
    """Return the bytes that neither of the two ways of writing them has a token for.

    They are left out.

    GPT-2's gives a byte that cannot be printed the next character from 256 on.
    """
    printed = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    characters = [chr(byte if byte in printed else next(others)) for byte in range(0x100)]
    return bytes(
        byte
        for byte, character in enumerate(characters)
        if character.encode() not in texts and f"<0x{byte:02X}>".encode() not in texts
    )


def _utf8(text: object) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"Expected a string to tokenise, got {type(text).__name__}.")
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise unicode_error(text) or error from None
    if len(data) > _LONGEST:
        message = (
            f"Prompt too long: {len(data)} bytes; llama.cpp's limit is {_LONGEST}. Shorten it."
        )
        raise RequestError(message)
    return data
