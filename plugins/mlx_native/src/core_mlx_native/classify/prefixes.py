"""The beginnings that rows share with one another, or with the prompts of recent calls.

A beginning that several rows of a call share is computed once, in a pass of its own, and kept. One
row alone, or a few that have nothing in common, are compared with recent prompts: what a row
begins with like one of those is kept as the row has computed it, and the next one runs behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

from core.clock import Check
from core.errors import RequestError
from core_mlx_native.failures import is_out_of_memory, too_large
from core_mlx_native.loader import LoadedModel
from core_mlx_native.network.prefill import NO_PREFIX, Prefill, Prefix, run_prefix
from core_runtime.batches import by_prefix
from core_runtime.owner import OwnerThread
from core_runtime.prefix_cache import Entry

_FEW = 16  # rows that run alone; more of them have enough to do without recent calls
_WORTH = 8  # tokens: what fewer of them take is about what it costs to look at kept ones


class Readable(Protocol):
    """A row that can run."""

    @property
    def ids(self) -> Sequence[int]:
        """The tokens that are run."""
        ...

    @property
    def read_from(self) -> int:
        """The index of the first token that is read; a shared prefix ends before it."""
        ...


R = TypeVar("R", bound=Readable)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Group(Generic[R]):
    """Rows that begin with one prefix, or the ``error`` that kept it from being computed.

    ``computed``: tokens of it that were computed for these rows, and count as the first one's.
    ``alone``: the rows share nothing, so that what each one computes is worth a look.
    """

    rows: Sequence[R]
    prefix: Prefix = NO_PREFIX
    computed: int = 0
    error: RequestError | None = None
    alone: bool = False


@dataclass(slots=True)
class Prefixes:
    """Finds the prefixes of a call's rows, and has the owner thread compute them."""

    model: LoadedModel
    owner: OwnerThread
    check: Check
    _last: tuple[Sequence[int], Prefix] = field(default=((), NO_PREFIX), init=False)

    def groups(self, rows: Sequence[R]) -> Iterator[Group[R]]:
        """Yield the rows by their prefixes; each is computed as it is asked for."""
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

    def behind_recent(self, row: Readable) -> Prefix:
        """What is kept of recent prompts for a row that runs alone. On the owner thread."""
        [(_, prefix)] = self._recent([row])
        return prefix

    def learn(self, rows: Sequence[Readable], prefix: Prefix) -> list[int]:
        """Tell how much of each row, which runs alone, is to be kept. On the owner thread."""
        most = [min(self.model.prefixes.remember(row.ids), row.read_from) for row in rows]
        return [common if common - prefix.size >= _WORTH else 0 for common in most]

    def keep(
        self,
        rows: Sequence[Readable],
        prefix: Prefix,
        parts: Sequence[Prefill],
        sizes: Sequence[int],
    ) -> None:
        """Keep so many tokens of each row, as the parts computed them. On the owner thread."""
        places = [(part, row) for part in parts for row in range(len(part.hidden))]
        for row, (part, place), size in zip(rows, places, sizes, strict=True):
            if size:
                cut = (slice(place, place + 1), slice(None), slice(size))
                layers = [(keys[cut], values[cut]) for keys, values in part.cache]
                self.model.prefixes.keep(row.ids[:size], prefix.known(layers))

    def forget(self) -> bool:
        """Drop what is kept for the calls to come, for want of memory. False if that is nothing."""
        try:
            return self.owner.run(self.model.prefixes.clear, self.check)
        except RequestError:  # closed, or stopped: whoever runs next hears of it
            return False

    # ------------------------------------------------------------ rows that share a prefix

    def _sharing(self, ids: Sequence[int], rows: Sequence[R]) -> Group[R]:
        if ids == self._last[0]:  # the block before ended with it
            return Group(rows, self._last[1])

        # What goes wrong is the error of the rows that begin with it.
        try:
            self.check()
            prefix, computed = self._there(partial(self._get, ids, len(rows)), len(ids))
        except RequestError as error:
            return Group(rows, error=error)
        self._last = ids, prefix
        return Group(rows, prefix, computed)

    def _get(self, ids: Sequence[int], rows: int) -> tuple[Prefix, int]:
        """The prefix and how much of it is computed for the rows. On the owner thread."""
        kept = self.model.prefixes
        found = kept.longest(ids, len(ids))
        known = kept.cut(found.entry, found.size).whole() if found else NO_PREFIX

        # What is missing runs with the rows themselves where that is less than a pass of its own.
        missing = len(ids) - known.size
        if known.size and (rows - 1) * missing <= self.model.pass_tokens:
            return known, 0
        prefix = self._run(ids, known)
        kept.keep(ids, known.known(prefix.cache))
        return prefix, missing

    def _run(self, ids: Sequence[int], known: Prefix) -> Prefix:
        return run_prefix(self.model.decoder, ids, self.model.fast, self.check, known)

    # ------------------------------------------------------------ rows that share nothing

    def _alone(self, rows: Sequence[R]) -> Iterator[Group[R]]:
        if len(rows) == 1:  # not worth a job of its own: `behind_recent` is asked as it runs
            yield Group(rows, alone=True)
            return

        try:
            found = self._there(partial(self._recent, rows), max(len(row.ids) for row in rows))
        except RequestError as error:
            yield Group(rows, error=error)
            return
        for places, prefix in found:
            yield Group([rows[place] for place in places], prefix, alone=True)

    def _recent(self, rows: Sequence[R]) -> list[tuple[Sequence[int], Prefix]]:
        """Divide the rows by what is kept of recent prompts. On the owner thread."""
        kept = self.model.prefixes
        found = [kept.longest(row.ids, row.read_from) for row in rows]
        behind: dict[Entry[Prefix], list[tuple[int, int]]] = {}
        for place, one in enumerate(found):
            if one is not None and one.size >= _WORTH:
                behind.setdefault(one.entry, []).append((place, one.size))

        # Rows that run by themselves take a pass of their own, which has to pay.
        groups: list[tuple[Sequence[int], Prefix]] = []
        rest = set(range(len(rows)))
        for entry, members in behind.items():
            size = min(size for _, size in members)
            places = [place for place, _ in members]
            if len(places) == len(rows) or len(places) * size > self.model.pass_tokens:
                groups.append((places, kept.cut(entry, size).whole()))
                rest -= set(places)
        return [*groups, (sorted(rest), NO_PREFIX)] if rest else groups

    # ------------------------------------------------------------ the owner thread

    def _there(self, job: Callable[[], T], tokens: int) -> T:
        """Run a job on the owner thread; out of memory, again without what is kept.

        Raises what `OwnerThread.run` does, and `OutOfMemoryError` for a prompt of so many tokens.
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
