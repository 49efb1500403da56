"""The keys and values of recent prompts' beginnings, kept between calls; on the owner thread.

`classify`, `score` and all that generates share one store. What it holds is a copy, evaluated, and
nobody writes into it: a view would hold the buffer that it is a part of (see `kv_cache`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

import mlx.core as mx

from core.labels import common_length
from core_mlx_native.failures import is_out_of_memory
from core_mlx_native.network.attention import KeysValues
from core_mlx_native.network.ops import Ops
from core_mlx_native.network.prefill import Prefix
from core_runtime.prefix_cache import Entry, Found, PrefixCache

_RECENT = 16  # prompts whose tokens are remembered
_SHARE = 2  # at most one part in so many of the memory that would be free without it
_LOOK_SECONDS = 1.0  # between two looks at the free memory


class PrefixStore:
    """Holds at most ``limit`` bytes, and none at all with 0.

    ``windows``: of each layer, how many positions a token sees, 0 for all of them. ``free`` tells
    how many bytes the device has left, or None where nobody knows.
    """

    def __init__(
        self, ops: Ops, windows: Sequence[int], limit: int, free: Callable[[], int | None]
    ) -> None:
        self._ops, self._windows, self._free = ops, windows, free
        self._cache: PrefixCache[Prefix] = PrefixCache(limit)
        self._recent: deque[Sequence[int]] = deque(maxlen=_RECENT)
        self._limit, self._looked = limit, 0.0

    def another(self) -> PrefixStore:
        """An empty store for a network of the same shape, which may hold as much."""
        return PrefixStore(self._ops, self._windows, self._limit, self._free)

    @property
    def on(self) -> bool:
        """False where nothing is ever kept."""
        return self._limit > 0

    @property
    def held(self) -> int:
        """The bytes of what is kept."""
        return self._cache.held

    def longest(self, ids: Sequence[int], most: int) -> Found[Prefix] | None:
        """Find what serves for most of the first ``most`` tokens; None without anything."""
        return self._cache.longest(ids, most) if self.on else None

    def cut(self, entry: Entry[Prefix], size: int) -> Prefix:
        """The first ``size`` tokens of an entry, at least its ``least``."""
        prefix = entry.payload.cut(size)
        self._ops.begin(prefix.arrays())
        return prefix

    def keep(self, ids: Sequence[int], cache: Sequence[KeysValues]) -> None:
        """Keep a copy of each layer's last columns [1, kv heads, n, D], which end with ``ids``.

        Where there is no memory for it, there is none for what is kept already.
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
        """What `longest` would find, had it been kept: each layer's last columns behind ``ids``."""
        prefix = Prefix(len(ids), cache)
        return Entry(tuple(ids), prefix, 0, self._least(prefix))

    def remember(self, ids: Sequence[int]) -> int:
        """Remember a prompt; how many tokens it begins with alike with a recent one, at most."""
        common = max((common_length(ids, recent) for recent in self._recent), default=0)
        self._recent.append(ids)
        return common

    def clear(self) -> bool:
        """Drop everything. False if nothing was held."""
        held = self.held > 0
        self._cache.clear()
        self._recent.clear()
        return held

    def _least(self, prefix: Prefix) -> int:
        """The fewest tokens it serves for: a later token must not miss what its window shows."""
        least = 1
        for (keys, _), window in zip(prefix.cache, self._windows, strict=True):
            lost = prefix.size - keys.shape[2]
            if lost:
                least = max(least, lost + window - 1)
        return least

    def _look(self, more: int) -> None:
        """Hold less where memory has become scarce, now and then."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked, free = now, self._free()
        if free is not None:
            self._cache.limit = min(self._limit, (free + self.held) // _SHARE)
            self._cache.shrink(self._cache.limit)


def _copied(columns: mx.array) -> mx.array:
    """The columns in a buffer of their own, which `mx.contiguous` does not promise."""
    return mx.concatenate([columns[:, :, :0], columns], axis=2)
