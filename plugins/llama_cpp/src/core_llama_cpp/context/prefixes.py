"""Beginnings of prompts: those of earlier calls, kept, and the one that a pass's prompts share.

A kept prefix is a copy in the host's memory, and takes no cells: requests never wait for it. Left
in its cells it would cost no copy, but then a prompt's own tokens may come to stand in front of
those that it continues. Flash attention on a CPU adds in the order of cells, and rounds its sums to
16 bits: the logits of two real models moved by 0.4 and 1.1. Behind a copy that was written back
they are the same to the bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from core.labels import common_length
from core_llama_cpp.context.pool import Lease, Pool
from core_llama_cpp.context.session import Session, State
from core_llama_cpp.context.spans import Reading, Runner
from core_runtime.machine import available_bytes
from core_runtime.prefix_cache import Found, PrefixCache

_FEWEST = 16  # tokens: fewer are computed in the time that it takes to find and to copy them
_COPIED = 16  # tokens are copied in the time that one is computed, at least
_RECENT = 16  # prompts that the next one is compared with
_SHARE = 2  # of what is free and what is kept, at most one half is kept: never more than is free


class KeptPrefixes:
    """States of sequences by their tokens, ``limit`` bytes at most; 0 keeps none.

    Everything but `held` and `peak`, the most bytes that were, belongs to the model's owner thread.
    """

    def __init__(self, session: Session, limit: int) -> None:
        self._session, self._limit = session, limit
        self._store: PrefixCache[State] = PrefixCache(limit)
        self._recent: deque[tuple[int, ...]] = deque(maxlen=_RECENT)
        self.peak = 0

    @property
    def held(self) -> int:
        """The bytes that are kept; from any thread."""
        return self._store.held

    def beginning(self, ids: Sequence[int], most: int) -> int:
        """The length of what a lone prompt should begin with as a prefix of its own; 0 for none.

        That is kept already, or a recent prompt began with it too: of ``most`` tokens at most.
        """
        if not self._limit or most < _FEWEST:
            return 0
        found = self._found(ids, most)
        kept = found.size if found else 0

        new = tuple(ids[:most])
        shared = max((common_length(recent, new) for recent in self._recent), default=0)
        self._recent.append(new)
        return shared if shared >= kept + _FEWEST else kept

    def restore(self, ids: Sequence[int], most: int, lease: Lease, pool: Pool) -> int:
        """Fill the first sequence of a lease with the first of these tokens; returns how many.

        ``most`` of them at most; 0 where nothing of use is kept. For a moment it takes the cells
        of the whole entry, which ``lease`` and what is free in ``pool`` must have.
        """
        found = self._found(ids, most)
        if found is None or len(found.entry.ids) > lease.cells + pool.cells:
            return 0
        sequence = lease.sequences[0]
        restored = self._session.restore(found.entry.payload, sequence)
        self._session.drop(sequence, found.size if restored else -1)
        return found.size if restored else 0

    def keep(self, ids: Sequence[int], sequence: int) -> None:
        """Keep what a sequence holds of these tokens, which are its own from the first one on."""
        ids = ids[: self._session.end(sequence)]
        if not self._limit or len(ids) < _FEWEST or self._has(ids):
            return
        size = self._session.state_bytes(sequence)
        if size > self._limit or not self._fits(size):
            return
        # A state has the last window only, so that it serves whole or not at all.
        least = len(ids) if self._session.exceeds_window(len(ids)) else 1
        with suppress(MemoryError):
            self._store.keep(ids, self._session.state(sequence), size, least)
        self.peak = max(self.peak, self.held)

    def keep_prompt(self, ids: Sequence[int], sequence: int) -> None:
        """`keep` for a prompt that goes on, where what becomes of it could not be cut back."""
        if self._session.exceeds_window(len(ids)):
            self.keep(ids, sequence)

    def clear(self) -> None:
        """Drop everything."""
        self._store.clear()
        self._recent.clear()

    def _found(self, ids: Sequence[int], most: int) -> Found[State] | None:
        """The kept prefix that is worth its copy."""
        found = self._store.longest(ids, most)
        if found is None or found.size < _FEWEST or found.size * _COPIED < len(found.entry.ids):
            return None
        return found

    def _has(self, ids: Sequence[int]) -> bool:
        found = self._store.longest(ids, len(ids))
        return found is not None and found.size == len(ids)

    def _fits(self, size: int) -> bool:
        """True where memory has room for so much; what is kept gives way where others want it."""
        free = available_bytes()
        if free is None:
            return True
        allowed = (free + self.held) // _SHARE
        self._store.shrink(max(0, allowed - size))
        return size <= allowed


class SharedPrefix:
    """The one beginning that is in the cache; on the owner thread. Another one takes its place.

    What is computed of it is kept for later calls. ``computed``: tokens that the last `use` had to
    compute.
    """

    def __init__(self, session: Session, pool: Pool, runner: Runner, kept: KeptPrefixes) -> None:
        self._session, self._pool, self._runner, self._kept = session, pool, runner, kept
        self._ids: Sequence[int] = ()
        self._lease: Lease | None = None
        self.computed = 0

    def missing(self, ids: Sequence[int]) -> int:
        """The cells that `use` would take, those aside that it would give back."""
        return 0 if self._lease and self._ids == ids else len(ids)

    def use(self, ids: Sequence[int], between: Callable[[], None]) -> int | None:
        """The sequence that holds these tokens; None for none of them.

        ``between`` two batches may raise, and nothing is left over. Raises ValueError where the
        pool has no room for it, `DecodeError`.
        """
        self.computed = 0
        if self._lease is None or self._ids != ids:
            self.drop()
            if not ids:
                return None
            self._compute(ids, between)
        return self._lease.sequences[0] if self._lease else None

    def drop(self) -> None:
        """Give the cells of the beginning back."""
        if self._lease is not None:
            self._session.drop(self._lease.sequences[0])
            self._pool.give(self._lease)
            self._ids, self._lease = (), None

    def _compute(self, ids: Sequence[int], between: Callable[[], None]) -> None:
        self._ids, self._lease = ids, self._pool.take(len(ids), 1)
        [sequence] = self._lease.sequences
        try:
            start = self._kept.restore(ids, len(ids), self._lease, self._pool)
            span = Reading(ids[start:], start, sequence, reads=0)
            self._runner.run([span], between)
            if span.error is not None:
                raise span.error
        except BaseException:
            self.drop()
            raise

        self.computed = len(ids) - start
        self._kept.keep(ids, sequence)
