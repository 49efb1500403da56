"""Prefix cache: results computed for the prefixes of recent prompts, reused for later prompts.

A backend stores a payload with the token ids: keys and values, or a lease of the cells that hold
them. Prompts with a shared prefix share the results for it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from core.kit.labels import common_length

P = TypeVar("P")


def _nothing(payload: object) -> None:
    """Leave a dropped payload to Python."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry(Generic[P]):
    """A ``payload`` of ``size`` bytes, computed for ``ids``.

    It serves any prompt that starts with its first n tokens, for n >= ``least``: layers with a
    window no longer have the columns that a shorter prefix needs.
    """

    ids: tuple[int, ...]
    payload: P
    size: int
    least: int = 1

    def covers(self, other: Entry[P]) -> bool:
        """Return True if it serves every prompt that the other one serves."""
        count = len(other.ids)
        if self.least > other.least or count > len(self.ids):
            return False
        # The last token usually differs, which avoids a comparison of thousands.
        return self.ids[count - 1] == other.ids[-1] and self.ids[:count] == other.ids


@dataclass(frozen=True, slots=True)
class PrefixMatch(Generic[P]):
    """An entry whose first ``size`` tokens are a prefix of the prompt."""

    entry: Entry[P]
    size: int


class PrefixCache(Generic[P]):
    """A cache of at most ``limit`` bytes, which drops the least recently used entries first.

    Everything runs on one thread, the model's owner thread. ``dropped`` is called with each dropped
    payload, and must not use the cache.
    """

    def __init__(self, limit: int, dropped: Callable[[P], None] = _nothing) -> None:
        self.limit, self.used = limit, 0
        self._dropped = dropped
        self._entries: dict[tuple[int, ...], Entry[P]] = {}  # in order of their last use
        self._sorted: list[tuple[int, ...]] = []  # entries with a shared prefix are neighbours

    def __len__(self) -> int:
        return len(self._entries)

    def longest(self, ids: Sequence[int], most: int) -> PrefixMatch[P] | None:
        """Return the longest match within the first ``most`` tokens, and mark it as used.

        None without a match of at least one token.
        """
        wanted = tuple(ids[: max(0, most)])
        right = bisect_left(self._sorted, wanted)
        left = right - 1

        # The farther an entry is from the prompt's place, the shorter the shared prefix.
        before, after = self._common(left, wanted), self._common(right, wanted)
        while size := max(before, after):
            entry = self._entries[self._sorted[left if before == size else right]]
            if size >= entry.least:
                self._touch(entry)
                return PrefixMatch(entry, size)
            if before == size:
                left -= 1
                before = self._common(left, wanted)
            else:
                right += 1
                after = self._common(right, wanted)
        return None

    def keep(self, ids: Sequence[int], payload: P, size: int, least: int = 1) -> bool:
        """Add a payload of ``size`` bytes; covered entries are dropped, and old ones to make room.

        Return False if the payload itself is dropped: too large, or covered by another entry.
        Raises ValueError without ids, and for a ``least`` larger than their number.
        """
        if not 1 <= least <= len(ids):
            raise ValueError(f"an entry of {len(ids)} tokens cannot serve from {least} on")
        new = Entry(tuple(ids), payload, size, least)

        # Another entry covers it, or it does not fit.
        covering = next((entry for entry in self._entries.values() if entry.covers(new)), None)
        if covering is not None:
            self._touch(covering)
        if covering is not None or size > self.limit:
            self._dropped(payload)
            return False

        for entry in list(self._entries.values()):
            if new.covers(entry):
                self._drop(entry)
        self.shrink(self.limit - size)
        self._entries[new.ids] = new
        insort(self._sorted, new.ids)
        self.used += size
        return True

    def take(self, match: PrefixMatch[P]) -> P:
        """Remove an entry and return its payload, without calling ``dropped``."""
        self._remove(match.entry)
        return match.entry.payload

    def shrink(self, limit: int) -> None:
        """Drop the least recently used entries until at most ``limit`` bytes are left."""
        while self._entries and self.used > limit:
            self._drop(next(iter(self._entries.values())))

    def clear(self) -> None:
        """Drop everything."""
        for entry in list(self._entries.values()):
            self._drop(entry)

    def _touch(self, entry: Entry[P]) -> None:
        self._entries[entry.ids] = self._entries.pop(entry.ids)

    def _drop(self, entry: Entry[P]) -> None:
        self._remove(entry)
        self._dropped(entry.payload)

    def _remove(self, entry: Entry[P]) -> None:
        del self._entries[entry.ids]
        del self._sorted[bisect_left(self._sorted, entry.ids)]
        self.used -= entry.size

    def _common(self, index: int, ids: tuple[int, ...]) -> int:
        """Return the length of the prefix shared with the entry at an index; 0 beyond the ends."""
        if not 0 <= index < len(self._sorted):
            return 0
        return common_length(self._sorted[index], ids)
