"""``classify``: from prompts to results, one micro-batch after another.

Whatever goes wrong with one prompt becomes that row's ``error``; the other rows finish.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from core.clock import RequestClock
from core.errors import RequestError
from core.options import GenerateConfig
from core.serving.batching import micro_batches, rounded_up
from core.serving.owner import OwnerThread
from core.serving.prefixes import grouped
from core.serving.reading import Row
from core.types import ClassifyResult
from core_mlx_native.classify_pass import Answers, Started, labels_only, results, start
from core_mlx_native.failures import is_out_of_memory, too_large
from core_mlx_native.loader import LoadedModel
from core_mlx_native.reading import NO_PREFIX, Prefix, run_prefix

_PREFIX_SHARE = 16  # a prefix token weighs so much less than one that is computed: it takes memory

Results = Iterator[tuple[Row, ClassifyResult]]


@dataclass(frozen=True, slots=True)
class Begun:
    """A micro-batch that is being started, or why it is not."""

    rows: Sequence[Row]
    prefix: Prefix
    started: Future[Started] | Exception


@dataclass(frozen=True, slots=True)
class Read:
    """What came of it."""

    rows: Sequence[Row]
    prefix: Prefix
    answers: Answers | Exception


@dataclass(slots=True)
class Classifier:
    """One call. ``reused`` counts tokens of prompts that others computed."""

    model: LoadedModel
    owner: OwnerThread
    config: GenerateConfig
    clock: RequestClock
    reused: int = field(default=0, init=False)
    _last: tuple[Sequence[int], Prefix] = field(default=((), NO_PREFIX), init=False)

    def results(self, blocks: Iterable[Sequence[Row]]) -> Results:
        """Each row's result, in whatever order they run best.

        On a GPU, one micro-batch is queued before the one before is waited for, and Python works on
        what was read while the owner thread queues the next.
        """
        running: Begun | None = None
        read: Read | None = None
        try:
            for begun in self._begin_all(blocks):
                before, running = running, begun
                if read is not None:
                    yield from self._end(read)
                read = None if before is None else self._read(before)
                if not self.model.overlaps_classify:
                    yield from self._end(self._read(begun))
                    running = None
            if read is not None:
                yield from self._end(read)
            if running is not None:
                yield from self._end(self._read(running))
        finally:
            if running is not None and isinstance(running.started, Future):
                running.started.cancel()  # of a call that ends before its results

    def _begin_all(self, blocks: Iterable[Sequence[Row]]) -> Iterator[Begun]:
        """Queue micro-batches, one each time that one is asked for."""
        for rows in blocks:
            for prefix, group in self._groups(rows):
                yield from self._begin_group(group, prefix)

    def _groups(self, rows: Sequence[Row]) -> Iterable[tuple[Sequence[int], Sequence[Row]]]:
        """Prefixes, each with the rows that begin with it."""
        if not self.model.fast.prefix:
            return [((), rows)]
        most = [_readable_from(row) for row in rows]
        return grouped(rows, [row.ids for row in rows], most, self.model.pass_tokens)

    def _begin_group(self, rows: Sequence[Row], prefix_ids: Sequence[int]) -> Iterator[Begun]:
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
        if ids != self._last[0]:
            try:
                self.clock.check()
                self._last = ids, self.owner.run(lambda: self._run_prefix(ids))
            except RequestError as error:
                return error
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                return too_large(len(ids))
            self.reused -= len(ids)
        self.reused += len(ids) * rows
        return self._last[1]

    def _begin(self, rows: Sequence[Row], prefix: Prefix) -> Begun:
        try:
            return Begun(rows, prefix, self.owner.submit(lambda: self._start(rows, prefix)))
        except RequestError as error:
            return Begun(rows, prefix, error)

    def _start(self, rows: Sequence[Row], prefix: Prefix) -> Started:
        self.clock.check()
        return start(self.model, rows, prefix, self.config, self.clock.check)

    def _run_prefix(self, ids: Sequence[int]) -> Prefix:
        return run_prefix(self.model.decoder, ids, self.model.fast, self.clock.check)

    def _read(self, begun: Begun) -> Read:
        """Wait for it. On the owner thread, as all of MLX's work is."""
        return Read(begun.rows, begun.prefix, self._answers(begun.started))

    def _answers(self, started: Future[Started] | Exception) -> Answers | Exception:
        if isinstance(started, Exception):
            return started
        try:
            return self.owner.run(started.result().read)
        except RequestError as error:
            return error.with_traceback(None)  # its frames hold what the pass has computed
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return error.with_traceback(None)

    def _end(self, read: Read) -> Results:
        """The results; out of memory, those of its halves, down to the row that does not fit."""
        rows, prefix, found = read.rows, read.prefix, read.answers
        if isinstance(found, Answers):
            text = self.model.tokenizer.token_text
            yield from zip(rows, results(found, self.config, text), strict=True)
        elif isinstance(found, RequestError):
            yield from ((row, ClassifyResult(error=found)) for row in rows)
        elif len(rows) == 1:
            yield rows[0], ClassifyResult(error=too_large(len(rows[0].ids)))
        else:
            half = len(rows) // 2
            yield from self._end(self._read(self._begin(rows[:half], prefix)))
            yield from self._end(self._read(self._begin(rows[half:], prefix)))


def _readable_from(row: Row) -> int:
    """How many tokens of a row nothing is read behind: its end, and where its labels begin."""
    return min(len(row.ids), row.question.anchor if row.question else len(row.ids)) - 1
