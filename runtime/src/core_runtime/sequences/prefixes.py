"""The prefixes of prompts in a KV cache: cached ones, and one shared by a pass.

A cached prefix is a copy in the host's memory and takes no cells, so requests never wait for it.
Reusing the cells in place would save the copy, but would not be bit-exact: a prompt's tokens could
be stored before the prefix that they follow. llama.cpp's flash attention on a CPU adds in the order
of cells, and rounds its sums to 16 bits: the logits of two real models moved by 0.4 and 1.1. After
a restored copy they are equal to the bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from core.kit.labels import common_length
from core_runtime.machine import available_bytes
from core_runtime.prefix_cache import PrefixCache, PrefixMatch
from core_runtime.sequences.pool import Lease, Pool
from core_runtime.sequences.session import Session, State
from core_runtime.sequences.spans import SpanReading, SpanRunner

_FEWEST = 16  # tokens: to find and copy fewer takes as long as to compute them
_COPIED = 16  # at least this many tokens are copied in the time that one is computed
_RECENT = 16  # prompts to compare the next one with
_SHARE = 2  # at most one half of free and cached bytes together: never more than is free


class KeptPrefixes:
    """A cache of sequence states by their tokens, of at most ``limit`` bytes; 0 turns it off.

    All of it belongs to the model's owner thread, except `used` and `peak`, the maximum of `used`.
    """

    def __init__(self, session: Session, limit: int) -> None:
        self._session, self._limit = session, limit
        self._store: PrefixCache[State] = PrefixCache(limit)
        self._recent: deque[tuple[int, ...]] = deque(maxlen=_RECENT)
        self.peak = 0

    @property
    def used(self) -> int:
        """The cached bytes; from any thread."""
        return self._store.used

    def beginning(self, ids: Sequence[int], most: int) -> int:
        """Return the length of the prefix to use for a prompt, at most ``most`` tokens; 0 for none.

        The prefix is cached already, or a recent prompt had it, too.
        """
        if not self._limit or most < _FEWEST:
            return 0
        match = self._match(ids, most)
        cached = match.size if match else 0

        new = tuple(ids[:most])
        shared = max((common_length(recent, new) for recent in self._recent), default=0)
        self._recent.append(new)
        return shared if shared >= cached + _FEWEST else cached

    def restore(self, ids: Sequence[int], most: int, lease: Lease, pool: Pool) -> int:
        """Fill the first sequence of a lease with the longest cached prefix; return its length.

        At most ``most`` tokens; 0 if nothing useful is cached. The entire entry is restored first,
        for which ``lease`` and the free part of ``pool`` must have cells.
        """
        match = self._match(ids, most)
        if match is None or len(match.entry.ids) > lease.cells + pool.cells:
            return 0
        sequence = lease.sequences[0]
        restored = self._session.restore(match.entry.payload, sequence)
        self._session.drop(sequence, match.size if restored else -1)
        return match.size if restored else 0

    def keep(self, ids: Sequence[int], sequence: int) -> None:
        """Cache the state of a sequence, which holds these tokens from the first one on."""
        ids = ids[: self._session.end(sequence)]
        if not self._limit or len(ids) < _FEWEST or self._has(ids):
            return
        size = self._session.state_bytes(sequence)
        if size > self._limit or not self._fits(size):
            return
        # A state has only the last window, so that a part of it is useless.
        least = len(ids) if self._session.exceeds_window(len(ids)) else 1
        with suppress(MemoryError):
            self._store.keep(ids, self._session.state(sequence), size, least)
        self.peak = max(self.peak, self.used)

    def keep_prompt(self, ids: Sequence[int], sequence: int) -> None:
        """Cache a prompt before it is continued, if its longer state could not be truncated."""
        if self._session.exceeds_window(len(ids)):
            self.keep(ids, sequence)

    def clear(self) -> None:
        """Drop everything."""
        self._store.clear()
        self._recent.clear()

    def _match(self, ids: Sequence[int], most: int) -> PrefixMatch[State] | None:
        """Return the cached prefix that is worth copying, or None."""
        match = self._store.longest(ids, most)
        if match is None or match.size < _FEWEST or match.size * _COPIED < len(match.entry.ids):
            return None
        return match

    def _has(self, ids: Sequence[int]) -> bool:
        match = self._store.longest(ids, len(ids))
        return match is not None and match.size == len(ids)

    def _fits(self, size: int) -> bool:
        """Return True if memory has room for ``size`` bytes.

        If free memory is short, cached entries are evicted.
        """
        free = available_bytes()
        if free is None:
            return True
        allowed = (free + self.used) // _SHARE
        self._store.shrink(max(0, allowed - size))
        return size <= allowed


class SharedPrefix:
    """The one shared prefix in the KV cache; on the owner thread. Another one replaces it.

    It is cached for later calls. ``computed``: tokens that the last `use` had to compute.
    """

    def __init__(
        self, session: Session, pool: Pool, runner: SpanRunner, prefixes: KeptPrefixes
    ) -> None:
        self._session, self._pool, self._runner, self._prefixes = session, pool, runner, prefixes
        self._ids: Sequence[int] = ()
        self._lease: Lease | None = None
        self.computed = 0

    def missing(self, ids: Sequence[int]) -> int:
        """Return the cells that `use` would take, not counting those that it would give back."""
        return 0 if self._lease and self._ids == ids else len(ids)

    def use(self, ids: Sequence[int], between: Callable[[], None]) -> int | None:
        """Return the sequence that holds these tokens; None for an empty prefix.

        ``between`` may raise between two batches, which leaves nothing in the context. Raises
        ValueError if the pool has no room, `DecodeError`.
        """
        self.computed = 0
        if self._lease is None or self._ids != ids:
            self.drop()
            if not ids:
                return None
            self._compute(ids, between)
        return self._lease.sequences[0] if self._lease else None

    def drop(self) -> None:
        """Give the cells of the prefix back."""
        if self._lease is not None:
            self._session.drop(self._lease.sequences[0])
            self._pool.give(self._lease)
            self._ids, self._lease = (), None

    def _compute(self, ids: Sequence[int], between: Callable[[], None]) -> None:
        self._ids, self._lease = ids, self._pool.take(len(ids), 1)
        [sequence] = self._lease.sequences
        try:
            start = self._prefixes.restore(ids, len(ids), self._lease, self._pool)
            span = SpanReading(ids[start:], start, sequence, reads=0)
            self._runner.run([span], between)
            if span.error is not None:
                raise span.error
        except BaseException:
            self.drop()
            raise

        self.computed = len(ids) - start
        self._prefixes.keep(ids, sequence)
