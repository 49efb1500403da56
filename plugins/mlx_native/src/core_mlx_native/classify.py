"""``classify``: from prompts to results, one micro-batch after another.

Whatever goes wrong with one prompt becomes that row's ``error``; the other rows finish.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from core.clock import RequestClock
from core.errors import RequestError
from core.options import GenerateConfig
from core.serving.batching import micro_batches, rounded_up
from core.serving.owner import OwnerThread
from core.serving.prefixes import grouped
from core.serving.reading import Row
from core.types import ClassifyResult
from core_mlx_native.classify_pass import Started, finish, labels_only, start
from core_mlx_native.failures import is_out_of_memory, too_large
from core_mlx_native.loader import LoadedModel
from core_mlx_native.reading import NO_PREFIX, Prefix, run_prefix

_PREFIX_SHARE = 16  # a prefix token weighs so much less than one that is computed: it takes memory

Results = Iterator[tuple[Row, ClassifyResult]]


@dataclass(frozen=True, slots=True)
class Begun:
    """A micro-batch that was started, or why it was not."""

    rows: Sequence[Row]
    prefix: Prefix
    started: Started | Exception


@dataclass(slots=True)
class Classifier:
    """One call. ``computed`` and ``reused`` count tokens of prompts as they are run."""

    model: LoadedModel
    owner: OwnerThread
    config: GenerateConfig
    clock: RequestClock
    computed: int = field(default=0, init=False)
    reused: int = field(default=0, init=False)

    def results(self, rows: Sequence[Row]) -> Results:
        """Each row's result, in whatever order they run best."""
        pending: Begun | None = None
        for prefix, group in self._groups(rows):
            for begun in self._begin_all(group, prefix):
                if pending is not None:
                    yield from self._end(pending)
                pending = begun
                if not self.model.overlaps_classify:
                    yield from self._end(begun)
                    pending = None
        if pending is not None:
            yield from self._end(pending)

    def _groups(self, rows: Sequence[Row]) -> Iterable[tuple[Sequence[int], Sequence[Row]]]:
        """Prefixes, each with the rows that begin with it."""
        if not self.model.fast.prefix:
            return [((), rows)]
        return grouped(rows, [row.ids for row in rows], [_readable_from(row) for row in rows])

    def _begin_all(self, rows: Sequence[Row], prefix_ids: Sequence[int]) -> Iterator[Begun]:
        """Start a group's micro-batches, one each time that one is asked for."""
        prefix = self._prefix(prefix_ids, len(rows))
        if isinstance(prefix, Exception):
            yield Begun(rows, NO_PREFIX, prefix)
            return
        least = 1 if labels_only(self.model, self.config) else self.model.row_tokens
        step = self.model.length_step
        own = [rounded_up(len(row.ids) - prefix.size, step) for row in rows]
        weights = [max(own[i], len(row.ids) // _PREFIX_SHARE, least) for i, row in enumerate(rows)]
        budget, unsorted = self.model.token_budget, not self.model.fast.sorted
        for batch in micro_batches(weights, budget, in_order=unsorted, multiple=self.model.lanes):
            yield self._begin([rows[index] for index in batch], prefix)

    def _prefix(self, ids: Sequence[int], rows: int) -> Prefix | Exception:
        if not ids:
            return NO_PREFIX
        try:
            self.clock.check()
            prefix = self.owner.run(lambda: self._run_prefix(ids))
        except RequestError as error:
            return error
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return too_large(len(ids))
        self.computed += len(ids)
        self.reused += len(ids) * (rows - 1)
        return prefix

    def _begin(self, rows: Sequence[Row], prefix: Prefix) -> Begun:
        try:
            self.clock.check()
            job = self.owner.run(lambda: self._start(rows, prefix))
        except RequestError as error:
            return Begun(rows, prefix, error)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return Begun(rows, prefix, error)
        return Begun(rows, prefix, job)

    def _start(self, rows: Sequence[Row], prefix: Prefix) -> Started:
        return start(self.model, rows, prefix, self.config, self.clock.check)

    def _run_prefix(self, ids: Sequence[int]) -> Prefix:
        return run_prefix(self.model.decoder, ids, self.model.fast, self.clock.check)

    def _end(self, begun: Begun) -> Results:
        """The results; out of memory, those of its halves, down to the row that does not fit."""
        rows, found = begun.rows, self._finish(begun.started)
        if isinstance(found, list):
            self.computed += sum(len(row.ids) - begun.prefix.size for row in rows)
            yield from zip(rows, found, strict=True)
        elif isinstance(found, RequestError):
            yield from ((row, ClassifyResult(error=found)) for row in rows)
        elif len(rows) == 1:
            yield rows[0], ClassifyResult(error=too_large(len(rows[0].ids)))
        else:
            half = len(rows) // 2
            yield from self._end(self._begin(rows[:half], begun.prefix))
            yield from self._end(self._begin(rows[half:], begun.prefix))

    def _finish(self, started: Started | Exception) -> list[ClassifyResult] | Exception:
        if isinstance(started, Exception):
            return started
        try:
            return self.owner.run(lambda: finish(self.model, started, self.config))
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return error


def _readable_from(row: Row) -> int:
    """How many tokens of a row nothing is read behind: its end, and where its labels begin."""
    return min(len(row.ids), row.question.anchor if row.question else len(row.ids)) - 1
