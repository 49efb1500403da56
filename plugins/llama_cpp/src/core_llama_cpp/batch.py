"""A ``llama_batch``: tokens with their positions and sequences, and whose logits are wanted."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt


class Batch:
    """Filled, decoded, read, cleared, and filled again; its arrays are numpy's.

    ``tokens`` and ``outputs``: how many tokens, and rows of logits, one ``llama_decode`` takes.
    """

    def __init__(self, lib: ModuleType, tokens: int, outputs: int) -> None:
        self._lib, self._tokens, self._outputs = lib, tokens, outputs
        self._ids = np.zeros(tokens, np.int32)
        self._positions = np.zeros(tokens, np.int32)
        self._sequences = np.zeros(tokens, np.int32)
        self._wanted = np.zeros(tokens, np.int8)
        self._counts = np.ones(tokens, np.int32)  # sequences that a token belongs to
        # For each token the address of its list of sequences, which has one entry.
        first, step = self._sequences.ctypes.data, self._sequences.itemsize
        self._lists = first + step * np.arange(tokens, dtype=np.uintp)
        self.clear()

    def clear(self) -> None:
        """No tokens."""
        self._size = self._asked = 0

    def __len__(self) -> int:
        return self._size

    @property
    def room(self) -> int:
        """How many tokens more it takes."""
        return self._tokens - self._size

    @property
    def outputs_room(self) -> int:
        """How many rows of logits more may be asked for."""
        return self._outputs - self._asked

    def add(self, ids: Sequence[int], position: int, sequence: int, reads: int = 0) -> int:
        """Put tokens behind one another, the first at ``position``; read the last ``reads``.

        Returns the index of the first token whose logits are read, or would be. The caller looks
        at ``room`` and ``outputs_room``.
        """
        start, end = self._size, self._size + len(ids)
        self._ids[start:end] = ids
        self._positions[start:end] = np.arange(position, position + len(ids))
        self._sequences[start:end] = sequence
        self._wanted[start:end] = 0
        self._wanted[end - reads : end] = 1
        self._size, self._asked = end, self._asked + reads
        return end - reads

    def filled(self) -> Any:
        """The C structure; good while this object lives and is not changed."""
        lib = self._lib
        return lib.llama_batch(
            n_tokens=self._size,
            token=_pointer(self._ids, lib.llama_token),
            pos=_pointer(self._positions, lib.llama_pos),
            n_seq_id=_pointer(self._counts, ctypes.c_int32),
            seq_id=ctypes.cast(
                self._lists.ctypes.data, ctypes.POINTER(ctypes.POINTER(lib.llama_seq_id))
            ),
            logits=_pointer(self._wanted, ctypes.c_int8),
        )


def _pointer(values: npt.NDArray[Any], kind: Any) -> Any:
    return ctypes.cast(values.ctypes.data, ctypes.POINTER(kind))
