"""The prefixes that rows share with each other, or with the prompts of recent calls.

A prefix shared by several rows of a call is computed once, in a separate pass, and cached. A single
row, or a few without a shared prefix, are compared with recent prompts: a prefix in common is
cached as the row has computed it, and later rows reuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

from core.errors import RequestError
from core.kit.base import Check
from core_mlx_native.failures import is_out_of_memory, too_large
from core_mlx_native.loaded import LoadedModel
from core_mlx_native.network.prefill import NO_PREFIX, Prefill, Prefix, run_prefix
from core_runtime.batches import by_prefix
from core_runtime.owner import OwnerThread
from core_runtime.prefix_cache import Entry

_FEW = 16  # rows that run alone; more of them need no recent calls to keep the device busy
_WORTH = 8  # tokens: computing fewer costs about as much as a cache lookup


class Readable(Protocol):
    """A row that can run."""

    @property
    def ids(self) -> Sequence[int]:
        """The tokens to run."""
        ...

    @property
    def read_from(self) -> int:
        """The index of the first token whose output is read; a shared prefix ends before it."""
        ...


R = TypeVar("R", bound=Readable)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Group(Generic[R]):
    """Rows with a common prefix, or the ``error`` of computing it.

    ``computed``: prefix tokens computed for these rows, counted for the first one. ``alone``: the
    rows share nothing, so each one may have a prefix worth caching.
    """

    rows: Sequence[R]
    prefix: Prefix = NO_PREFIX
    computed: int = 0
    error: RequestError | None = None
    alone: bool = False


@dataclass(slots=True)
class Prefixes:
    """The prefixes of a call's rows, computed on the owner thread."""

    model: LoadedModel
    owner: OwnerThread
    check: Check
    _last: tuple[Sequence[int], Prefix] = field(default=((), NO_PREFIX), init=False)

    def groups(self, rows: Sequence[R]) -> Iterator[Group[R]]:
        """Yield the rows grouped by prefix; each prefix is computed on demand."""
        if not self.model.fast.prefix:
            yield Group(rows)
            return

        limits = [row.read_from for row in rows]
        prompts = [row.ids for row in rows]
        for ids, some in by_prefix(rows, prompts, limits, self.model.pass_tokens):
            if ids:
                yield self._sharing(ids, some)
            elif self.model.prefixes.on and len(rows) <= _FEW:
                yield from self._alone(some)
            else:
                yield Group(some)

    def after_recent(self, row: Readable) -> Prefix:
        """Return the cached prefix for a row that runs alone. Runs on the owner thread."""
        [(_, prefix)] = self._recent([row])
        return prefix

    def learn(self, rows: Sequence[Readable], prefix: Prefix) -> list[int]:
        """Return how much of each row, which runs alone, to cache. Runs on the owner thread."""
        most = [min(self.model.prefixes.remember(row.ids), row.read_from) for row in rows]
        return [common if common - prefix.size >= _WORTH else 0 for common in most]

    def keep(
        self,
        rows: Sequence[Readable],
        prefix: Prefix,
        parts: Sequence[Prefill],
        sizes: Sequence[int],
    ) -> None:
        """Cache the given number of tokens of each row. Runs on the owner thread."""
        places = [(part, row) for part in parts for row in range(len(part.hidden))]
        for row, (part, place), size in zip(rows, places, sizes, strict=True):
            if size:
                cut = (slice(place, place + 1), slice(None), slice(size))
                layers = [(keys[cut], values[cut]) for keys, values in part.cache]
                self.model.prefixes.keep(row.ids[:size], prefix.known(layers))

    def forget(self) -> bool:
        """Clear the prefix cache to free memory; return False if it was empty."""
        try:
            return self.owner.run(self.model.prefixes.clear, self.check)
        except RequestError:  # closed or stopped: the next job reports it
            return False

    # ------------------------------------------------------------ rows that share a prefix

    def _sharing(self, ids: Sequence[int], rows: Sequence[R]) -> Group[R]:
        if ids == self._last[0]:  # the block before ended with it
            return Group(rows, self._last[1])

        # A failure is the error of the rows with this prefix.
        try:
            self.check()
            prefix, computed = self._there(partial(self._get, ids, len(rows)), len(ids))
        except RequestError as error:
            return Group(rows, error=error)
        self._last = ids, prefix
        return Group(rows, prefix, computed)

    def _get(self, ids: Sequence[int], rows: int) -> tuple[Prefix, int]:
        """Return the prefix and the number of tokens computed for it. Runs on the owner thread."""
        store = self.model.prefixes
        match = store.longest(ids, len(ids))
        known = store.cut(match.entry, match.size).whole() if match else NO_PREFIX

        # Missing tokens run with the rows themselves if that costs less than a separate pass.
        missing = len(ids) - known.size
        if known.size and (rows - 1) * missing <= self.model.pass_tokens:
            return known, 0
        prefix = self._run(ids, known)
        store.keep(ids, known.known(prefix.cache))
        return prefix, missing

    def _run(self, ids: Sequence[int], known: Prefix) -> Prefix:
        return run_prefix(self.model.decoder, ids, self.model.fast, self.check, known)

    # ------------------------------------------------------------ rows that share nothing

    def _alone(self, rows: Sequence[R]) -> Iterator[Group[R]]:
        if len(rows) == 1:  # not worth a separate job: `after_recent` runs with the row
            yield Group(rows, alone=True)
            return

        try:
            groups = self._there(partial(self._recent, rows), max(len(row.ids) for row in rows))
        except RequestError as error:
            yield Group(rows, error=error)
            return
        for places, prefix in groups:
            yield Group([rows[place] for place in places], prefix, alone=True)

    def _recent(self, rows: Sequence[R]) -> list[tuple[Sequence[int], Prefix]]:
        """Divide the rows by their cached prefixes. Runs on the owner thread."""
        store = self.model.prefixes
        matches = [store.longest(row.ids, row.read_from) for row in rows]
        members_of: dict[Entry[Prefix], list[tuple[int, int]]] = {}
        for place, one in enumerate(matches):
            if one is not None and one.size >= _WORTH:
                members_of.setdefault(one.entry, []).append((place, one.size))

        # Rows that run separately need another pass, which has to pay off.
        groups: list[tuple[Sequence[int], Prefix]] = []
        rest = set(range(len(rows)))
        for entry, members in members_of.items():
            size = min(size for _, size in members)
            places = [place for place, _ in members]
            if len(places) == len(rows) or len(places) * size > self.model.pass_tokens:
                groups.append((places, store.cut(entry, size).whole()))
                rest -= set(places)
        return [*groups, (sorted(rest), NO_PREFIX)] if rest else groups

    # ------------------------------------------------------------ the owner thread

    def _there(self, job: Callable[[], T], tokens: int) -> T:
        """Run a job on the owner thread; if out of memory, clear the cache and retry.

        Raises like `OwnerThread.run`, and `OutOfMemoryError` for a prompt of ``tokens`` tokens.
        """
        try:
            return self.owner.run(job, self.check)
        except RequestError:
            raise
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        if self.forget():
            return self._there(job, tokens)
        raise too_large(tokens)
