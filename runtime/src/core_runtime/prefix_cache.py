"""Prefix cache: results computed for the prefixes of recent prompts, reused for later prompts.

A backend stores with the token ids what it needs: keys and values, or a lease of the cells that
hold them. Prompts with a shared prefix share the results for it.
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

    It serves any prompt that begins with the first n of them, from n = ``least`` on: layers with a
    window have lost the columns that a shorter beginning would look at.
    """

    ids: tuple[int, ...]
    payload: P
    size: int
    least: int = 1

    def covers(self, other: Entry[P]) -> bool:
        """Return True if it serves every prompt that the other one serves, as well."""
        count = len(other.ids)
        if self.least > other.least or count > len(self.ids):
            return False
        # The last token tells most of them apart, before thousands are compared.
        return self.ids[count - 1] == other.ids[-1] and self.ids[:count] == other.ids


@dataclass(frozen=True, slots=True)
class PrefixMatch(Generic[P]):
    """An entry of which the first ``size`` tokens begin the prompt that was looked for."""

    entry: Entry[P]
    size: int


class PrefixCache(Generic[P]):
    """Entries of at most ``limit`` bytes together; those go first that were used longest ago.

    Everything runs on one thread, the model's owner thread. ``dropped`` is called with each payload
    that goes, and must not use the cache.
    """

    def __init__(self, limit: int, dropped: Callable[[P], None] = _nothing) -> None:
        self.limit, self.used = limit, 0
        self._dropped = dropped
        self._entries: dict[tuple[int, ...], Entry[P]] = {}  # used last comes last
        self._sorted: list[tuple[int, ...]] = []  # those that begin alike are neighbours

    def __len__(self) -> int:
        return len(self._entries)

    def longest(self, ids: Sequence[int], most: int) -> PrefixMatch[P] | None:
        """Find the entry that serves for most of the first ``most`` tokens, and count it as used.

        None where no entry serves for one token at least.
        """
        wanted = tuple(ids[: max(0, most)])
        right = bisect_left(self._sorted, wanted)
        left = right - 1

        # The farther an entry stands from where the prompt would, the less they have in common.
        ahead, behind = self._common(left, wanted), self._common(right, wanted)
        while size := max(ahead, behind):
            entry = self._entries[self._sorted[left if ahead == size else right]]
            if size >= entry.least:
                self._touch(entry)
                return PrefixMatch(entry, size)
            if ahead == size:
                left -= 1
                ahead = self._common(left, wanted)
            else:
                right += 1
                behind = self._common(right, wanted)
        return None

    def keep(self, ids: Sequence[int], payload: P, size: int, least: int = 1) -> bool:
        """Keep a payload of ``size`` bytes; what it covers goes, and what was used longest ago.

        False if it is dropped itself: too large, or covered by an entry that is there already.
        Raises ValueError without ids, and for a ``least`` that they cannot reach.
        """
        if not 1 <= least <= len(ids):
            raise ValueError(f"an entry of {len(ids)} tokens cannot serve from {least} on")
        new = Entry(tuple(ids), payload, size, least)

        # It adds nothing to what another one serves, or does not fit.
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
        """Hand out the payload of an entry, which is no longer in the cache; nothing is dropped."""
        self._remove(match.entry)
        return match.entry.payload

    def shrink(self, limit: int) -> None:
        """Drop those used longest ago until the others have at most ``limit`` bytes together."""
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
        """Return how many tokens the entry at a place in the order has in common.

        0 beyond its ends.
        """
        if not 0 <= index < len(self._sorted):
            return 0
        return common_length(self._sorted[index], ids)
