"""The prefix cache: keys and values of recent prompts, used on the owner thread.

`classify`, `score` and generation share one store. Entries are evaluated copies and never written
to: a view would keep its complete buffer alive (see `kv_cache`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

import mlx.core as mx

from core.kit.labels import common_length
from core_mlx_native.failures import is_out_of_memory
from core_mlx_native.network.ops import Ops
from core_mlx_native.network.prefill import Prefix
from core_mlx_native.network.values import KeysValues
from core_runtime.prefix_cache import Entry, PrefixCache, PrefixMatch

_RECENT = 16  # prompts whose tokens are stored for comparison
_SHARE = 2  # at most this fraction (1/n) of the memory that would be free without it
_LOOK_SECONDS = 1.0  # between two checks of the free memory


class PrefixStore:
    """A prefix cache of at most ``limit`` bytes; 0 disables it.

    ``windows``: per layer, the number of positions that a token sees, 0 for all. ``free`` returns
    the device's free bytes, None if unknown.
    """

    def __init__(
        self, ops: Ops, windows: Sequence[int], limit: int, free: Callable[[], int | None]
    ) -> None:
        self._ops, self._windows, self._free = ops, windows, free
        self._cache: PrefixCache[Prefix] = PrefixCache(limit)
        self._recent: deque[Sequence[int]] = deque(maxlen=_RECENT)
        self._limit, self._looked = limit, 0.0

    def another(self) -> PrefixStore:
        """Return an empty store for a network of the same shape, with the same limit."""
        return PrefixStore(self._ops, self._windows, self._limit, self._free)

    @property
    def on(self) -> bool:
        """False if the cache is disabled."""
        return self._limit > 0

    @property
    def used(self) -> int:
        """The bytes in the cache."""
        return self._cache.used

    def longest(self, ids: Sequence[int], most: int) -> PrefixMatch[Prefix] | None:
        """Find the entry with the longest prefix of the first ``most`` tokens; None without one."""
        return self._cache.longest(ids, most) if self.on else None

    def cut(self, entry: Entry[Prefix], size: int) -> Prefix:
        """Return the first ``size`` tokens of an entry, at least its ``least``."""
        prefix = entry.payload.cut(size)
        self._ops.begin(prefix.arrays())
        return prefix

    def keep(self, ids: Sequence[int], cache: Sequence[KeysValues]) -> None:
        """Cache a copy of each layer's last columns [1, kv heads, n, D], which end with ``ids``.

        If memory runs out, the cache is cleared.
        """
        size = sum(array.size * array.itemsize for layer in cache for array in layer)
        self._look(size)
        if not self.on or size > self._cache.limit:
            return

        try:
            prefix = Prefix(len(ids), [(_copied(keys), _copied(values)) for keys, values in cache])
            self._ops.begin(prefix.arrays())
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            self.clear()
            return
        self._cache.keep(ids, prefix, size, self._least(prefix))

    def entry(self, ids: Sequence[int], cache: Sequence[KeysValues]) -> Entry[Prefix]:
        """Return the entry that `longest` would find if it were cached.

        ``cache``: each layer's last columns for ``ids``.
        """
        prefix = Prefix(len(ids), cache)
        return Entry(tuple(ids), prefix, 0, self._least(prefix))

    def remember(self, ids: Sequence[int]) -> int:
        """Store a prompt; return the length of its longest prefix in common with a recent one."""
        common = max((common_length(ids, recent) for recent in self._recent), default=0)
        self._recent.append(ids)
        return common

    def clear(self) -> bool:
        """Clear the cache; return False if it was empty."""
        had_entries = self.used > 0
        self._cache.clear()
        self._recent.clear()
        return had_entries

    def _least(self, prefix: Prefix) -> int:
        """Return the shortest length to which the prefix may be cut.

        Later tokens must not miss columns inside their window.
        """
        least = 1
        for (keys, _), window in zip(prefix.cache, self._windows, strict=True):
            lost = prefix.size - keys.shape[2]
            if lost:
                least = max(least, lost + window - 1)
        return least

    def _look(self, more: int) -> None:
        """Shrink the cache if memory has become scarce; checked occasionally."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked, free = now, self._free()
        if free is not None:
            self._cache.limit = min(self._limit, (free + self.used) // _SHARE)
            self._cache.shrink(self._cache.limit)


def _copied(columns: mx.array) -> mx.array:
    """Return a copy of the columns in a separate buffer, which `mx.contiguous` does not ensure."""
    return mx.concatenate([columns[:, :, :0], columns], axis=2)
