"""The interface of a session: one model with one KV cache, which holds many sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

CLASSIFY_SEQUENCES = 64
"""Sequences in addition to the slots': prompts and labels that are read in one batch."""
Logits: TypeAlias = npt.NDArray[np.float32]
State: TypeAlias = npt.NDArray[np.uint8]

END = -1
"""As a position in `Session.drop`: open to that side."""


class DecodeError(RuntimeError):
    """The error of a batch that was not computed; the cache may hold a part of it."""


class ScarceMemoryError(DecodeError):
    """The error of a batch for which memory was not enough; a smaller one may fit."""


class InterruptedPassError(DecodeError):
    """The error of a pass ended by `Session.interrupt`; the cache may hold a part of it."""


class Batch(Protocol):
    """A reusable batch: filled, decoded, read, cleared.

    The caller counts its tokens, and the rows of logits that it requests.
    """

    def clear(self) -> None:
        """Empty the batch."""
        ...

    def add(self, ids: Sequence[int], position: int, sequence: int, reads: int = 0) -> int:
        """Add consecutive tokens, the first at ``position``; the last ``reads`` are read.

        Returns the index of the first token whose logits are read, or would be.
        """
        ...


class Session(Protocol):
    """A model with its KV cache, in which sequences can share cells.

    All of it runs on the model's owner thread, except `interrupt`.
    """

    @property
    def cells(self) -> int:
        """The number of positions of the cache, which all sequences share."""
        ...

    @property
    def n_seq_max(self) -> int:
        """The number of sequences that the cache may hold at once."""
        ...

    @property
    def n_batch(self) -> int:
        """The most tokens of one `decode`."""
        ...

    @property
    def n_ubatch(self) -> int:
        """The most tokens of one pass through the layers, at most ``n_batch``."""
        ...

    @property
    def n_outputs_max(self) -> int:
        """The most tokens of one batch that may be read."""
        ...

    @property
    def caches_lone_rows_only(self) -> bool:
        """True if `state` is slow for rows that decoded together, whose cells are interleaved."""
        ...

    def new_batch(self) -> Batch:
        """Return an empty batch of ``n_batch`` tokens."""
        ...

    def decode(self, batch: Any) -> None:
        """Compute a batch of `new_batch`. Raises `InterruptedPassError`, `DecodeError`."""
        ...

    @property
    def hidden_layers(self) -> Sequence[int]:
        """The layers whose states can be read; 0 is the embedding, the last one is normed."""
        ...

    def decode_hidden(self, batch: Any, layers: Sequence[int]) -> None:
        """Decode for `hidden` after some of `hidden_layers`; every token of the batch is read."""
        ...

    def interrupt(self) -> None:
        """End the running pass, if there is one and the device allows it; from any thread.

        A late interrupt may end the next pass, which its owner then runs again.
        """
        ...

    def logits(self, index: int) -> Logits:
        """Return the logits [vocab_size] of the batch's token ``index``.

        Valid until the next `decode`. Raises `DecodeError` if they were not requested.
        """
        ...

    def hidden(self, index: int) -> Logits:
        """Return the states at ``index``, one layer after another: [layers * hidden_size].

        Valid as long as `logits`.
        """
        ...

    def copy(self, source: int, target: int) -> None:
        """Let an empty sequence begin with all tokens of another one."""
        ...

    def drop(self, sequence: int, start: int = END, end: int = END) -> None:
        """Forget a sequence's positions from ``start`` to before ``end``; all by default."""
        ...

    def end(self, sequence: int) -> int:
        """Return the position after the last one that a sequence holds; 0 for an empty one."""
        ...

    def exceeds_window(self, tokens: int) -> bool:
        """Return True if layers have an attention window that is shorter than ``tokens``."""
        ...

    def state_bytes(self, sequence: int) -> int:
        """Return the size of `state`."""
        ...

    def state(self, sequence: int) -> State:
        """Return a copy of a sequence's keys and values; layers with a window have the last one."""
        ...

    def restore(self, state: State, sequence: int) -> bool:
        """Restore a `state` into an empty sequence. Returns False without room for it."""
        ...
