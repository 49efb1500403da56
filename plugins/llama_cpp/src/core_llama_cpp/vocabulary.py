"""A model's vocabulary, asked through llama.cpp; safe to use from several threads.

It lives in the model's memory, so every question is asked under a lock that `close` takes too:
nobody asks a model that is being freed.
"""

from __future__ import annotations

import ctypes
import threading
from types import ModuleType
from typing import Any

import numpy as np

from core.errors import ModelClosedError, RequestError
from core.support import unicode_error

_PIECE_BYTES = 64  # most tokens are shorter
_LONGEST = 2**31 - 1024  # llama.cpp counts a text's bytes in 32 bits
# What ends a turn or a text in known families, also where a file marks only one of several.
_END_MARKS = ("<end_of_turn>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|endoftext|>")


class Vocabulary:
    """``pointer`` is a ``llama_vocab``. ``special``: ids of the control tokens by their text.

    ``size`` counts tokens; ``bos``: the id that begins every prompt, None where there is none;
    ``ends``: the ids that end a generation.
    """

    def __init__(self, lib: ModuleType, pointer: Any) -> None:
        self._lib, self._pointer = lib, pointer
        self._lock = threading.Lock()
        self._pieces: dict[int, bytes] = {}
        self.size = int(lib.llama_vocab_n_tokens(pointer))
        self.special, self.ends = self._marks()
        adds_bos = bool(lib.llama_vocab_get_add_bos(pointer))
        self.bos = self._id(lib.llama_vocab_bos) if adds_bos else None
        self.strips_space = self._first_piece_of("a").startswith(b" ")

    def close(self) -> None:
        """Whoever asks from now on gets `core.ModelClosedError`."""
        with self._lock:
            self._pointer = None

    def tokenize(self, text: str) -> list[int]:
        """The tokens of a text in which nothing is special, without BOS.

        Raises `core.RequestError` for lone surrogates, TypeError for what is no string.
        """
        data = _utf8(text)
        found = np.empty(len(data) + 8, np.int32)
        count = self._tokenize(data, found)
        if count < 0:  # more tokens than bytes: it says how many
            found = np.empty(-count, np.int32)
            count = self._tokenize(data, found)
        ids: list[int] = found[:count].tolist()
        return ids

    def piece(self, token_id: int) -> bytes:
        """A token's UTF-8 bytes, perhaps a part of a character; none of a special one, or none."""
        found = self._pieces.get(token_id)
        if found is None:
            found = self._piece(token_id) if 0 <= token_id < self.size else b""
            if found or token_id < self.size:
                self._pieces[token_id] = found
        return found

    def text(self, name: str) -> str | None:
        """The text of ``bos``, ``eos`` or ``pad``; None where the model has no such token."""
        token_id = self._id(getattr(self._lib, f"llama_vocab_{name}"))
        return None if token_id is None else self._text(token_id)

    def _tokenize(self, data: bytes, found: Any) -> int:
        pointer = ctypes.cast(found.ctypes.data, ctypes.POINTER(ctypes.c_int32))
        with self._lock:
            vocab = self._open()
            return int(
                self._lib.llama_tokenize(vocab, data, len(data), pointer, len(found), False, False)
            )

    def _piece(self, token_id: int) -> bytes:
        size = _PIECE_BYTES
        while True:
            buffer = ctypes.create_string_buffer(size)
            with self._lock:
                vocab = self._open()
                count = self._lib.llama_token_to_piece(vocab, token_id, buffer, size, 0, False)
            if count >= 0:
                return buffer.raw[:count]
            size = -count

    def _first_piece_of(self, text: str) -> bytes:
        return self.piece(next(iter(self.tokenize(text)), -1))

    def _marks(self) -> tuple[dict[str, int], frozenset[int]]:
        lib, vocab = self._lib, self._pointer
        attr, normal, control = lib.llama_vocab_get_attr, 4, lib.LLAMA_TOKEN_ATTR_CONTROL
        odd = {i: kind for i in range(self.size) if (kind := attr(vocab, i)) != normal}
        special = {self._text(i): i for i, kind in odd.items() if kind & control}
        ends = {i for i in odd if lib.llama_vocab_is_eog(vocab, i)}
        ends.update(special[mark] for mark in _END_MARKS if mark in special)
        named = (self._id(lib.llama_vocab_eos), self._id(lib.llama_vocab_eot))
        return special, frozenset(ends.union(i for i in named if i is not None))

    def _id(self, ask: Any) -> int | None:
        with self._lock:
            found = int(ask(self._open()))
        return found if 0 <= found < self.size else None

    def _text(self, token_id: int) -> str:
        with self._lock:
            found: bytes = self._lib.llama_vocab_get_text(self._open(), token_id)
        return found.decode(errors="replace")

    def _open(self) -> Any:
        if self._pointer is None:
            raise ModelClosedError
        return self._pointer


def _utf8(text: object) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"Only strings have tokens; this is a {type(text).__name__}.")
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise unicode_error(text) or error from None
    if len(data) > _LONGEST:
        raise RequestError(f"The prompt has {len(data)} bytes, and llama.cpp takes {_LONGEST}.")
    return data
