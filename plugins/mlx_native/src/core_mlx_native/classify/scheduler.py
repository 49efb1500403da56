"""The scheduler of `classify` and similar calls: queues, fetches and emits micro-batches.

Rows with a shared prefix, which is computed once, run in micro-batches of similar length; on a CPU
each core takes a part of a micro-batch. A failure of one row is that row's error; if memory runs
out, a micro-batch is halved, down to the row that does not fit.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

import mlx.core as mx

from core.errors import CoreError, RequestError
from core.kit.base import STOPPED, Check
from core_mlx_native.classify.prefixes import Group, Prefixes, R, Readable
from core_mlx_native.cpu import lanes
from core_mlx_native.failures import is_out_of_memory, too_large
from core_mlx_native.loaded import LoadedModel
from core_mlx_native.network.prefill import Prefill, Prefix, read
from core_runtime.batches import even_parts, micro_batches, padded, rounded_up
from core_runtime.equal_rows import RowResult
from core_runtime.log import log_batch
from core_runtime.owner import OwnerThread
from core_runtime.threads import awaited

_LOG = logging.getLogger("core_mlx_native")
_PREFIX_SHARE = 16  # cached prefix tokens weigh as much as one computed token: they take memory
_WORTH = 24  # tokens per lane: with fewer, reading the weights dominates, and every lane reads them
_COST = 0.8  # of a pass in lanes, relative to one pass on all cores


R_contra = TypeVar("R_contra", bound=Readable, contravariant=True)
H = TypeVar("H")  # the values of a micro-batch on the host
A = TypeVar("A", bound=RowResult)


class OnDevice(ABC, Generic[H]):
    """The values of a micro-batch, all queued on the device."""

    @abstractmethod
    def read(self) -> H:
        """Wait for the values. Call this on the owner thread, like all of MLX."""


class ReadTask(Protocol[R_contra, H, A]):
    """The part in which `classify` and `score` differ: the values that they read from rows.

    ``inputs`` and ``depth``: see `network.prefill.read`.
    """

    @property
    def inputs(self) -> Sequence[int]:
        """The layers whose inputs the task reads."""
        ...

    @property
    def depth(self) -> int | None:
        """The number of layers that run, None for all; with fewer, no prefix is cached."""
        ...

    @property
    def row_tokens(self) -> int:
        """The minimum of tokens that a row takes from the budget."""
        ...

    def positions(self, rows: Sequence[R_contra]) -> Sequence[Sequence[int]]:
        """Return the positions of each row whose hidden states are read, equally many per row."""
        ...

    def keeps_cache(self, rows: Sequence[R_contra]) -> bool:
        """Return True if the keys and values of the rows are needed again."""
        ...

    def queue(
        self, rows: Sequence[R_contra], parts: Sequence[Prefill], check: Check
    ) -> OnDevice[H]:
        """Queue the values read from the hidden states; ``parts`` contain the rows in order."""
        ...

    def results(self, values: H) -> list[A]:
        """Return each row's result. Needs no device, and runs on the caller's thread."""
        ...

    def failed(self, error: CoreError) -> A:
        """Return the result of a row that could not be run."""
        ...


@dataclass(frozen=True, slots=True)
class MicroBatch(Group[R]):
    """Rows of a group that run together."""

    def halves(self) -> tuple[MicroBatch[R], MicroBatch[R]]:
        """Split the rows in two halves; a prefix computed for them counts for the first."""
        half = len(self.rows) // 2
        return replace(self, rows=self.rows[:half]), replace(
            self, rows=self.rows[half:], computed=0
        )


class Ran(NamedTuple, Generic[R, H]):
    """A micro-batch with its prefix and its values."""

    batch: MicroBatch[R]
    values: OnDevice[H] | H


@dataclass(frozen=True, slots=True)
class InFlight(Generic[R, H]):
    """A micro-batch whose job was submitted to the owner thread, or the error that prevented it."""

    batch: MicroBatch[R]
    job: Future[Ran[R, H]] | RequestError
    since: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class Fetched(Generic[R, H]):
    """A micro-batch whose values are on the host, or the error that ended it."""

    batch: MicroBatch[R]
    values: H | None
    error: Exception | None = None


@dataclass(slots=True)
class Scheduler(Generic[R, H, A]):
    """The scheduler of one call; ``reused`` counts tokens of finished rows that others computed."""

    model: LoadedModel
    owner: OwnerThread
    task: ReadTask[R, H, A]
    check: Check
    reused: int = field(default=0, init=False)
    _stopped: RequestError | None = field(default=None, init=False)
    _prefixes: Prefixes = field(init=False)

    def __post_init__(self) -> None:
        self._prefixes = Prefixes(self.model, self.owner, self.check)

    def results(self, blocks: Iterable[Sequence[R]]) -> Iterator[tuple[R, A]]:
        """Yield each row's result, in the order in which the rows of a block run best.

        On a GPU one micro-batch is queued before the previous one is fetched, and results are built
        in Python while the owner thread queues the next one.
        """
        running: InFlight[R, H] | None = None
        fetched: Fetched[R, H] | None = None
        try:
            for batch in self.micro_batches(blocks):
                # Queue: the owner thread starts this micro-batch.
                in_front, running = running, self._queue(batch)

                # Emit the one fetched in the previous round, while the device runs the others.
                if fetched is not None:
                    yield from self._emit(fetched)

                # Fetch the previous one, which the device finishes before this one.
                fetched = self._fetch(in_front) if in_front is not None else None

                # On a CPU the next one would compete for the cores: fetch and emit at once.
                if not self._overlaps:
                    yield from self._emit(self._fetch(running))
                    running = None

            # Nothing follows: fetch and emit the rest.
            if fetched is not None:
                yield from self._emit(fetched)
            if running is not None:
                yield from self._emit(self._fetch(running))
        finally:
            if running is not None and isinstance(running.job, Future):
                running.job.cancel()  # if a call ends before its results

    # ------------------------------------------------------------ what runs together

    def micro_batches(self, blocks: Iterable[Sequence[R]]) -> Iterator[MicroBatch[R]]:
        """Divide the rows block by block; a prefix is computed when its first batch is due."""
        for block in blocks:
            for group in self._prefixes.groups(block):
                rows, computed = group.rows, group.computed
                if group.error is not None:
                    yield MicroBatch(rows, error=group.error)
                    continue

                for indices in self._cut(rows, group.prefix):
                    some = [rows[index] for index in indices]
                    yield MicroBatch(some, group.prefix, computed, alone=group.alone)
                    computed = 0

    def _cut(self, rows: Sequence[R], prefix: Prefix) -> Iterable[list[int]]:
        """Divide rows with a prefix into micro-batches, by their indices."""
        model, own = self.model, self._own(rows, prefix)

        def weight(tokens: int) -> int:
            """Return a row's weight in tokens: those it adds, its prefix share, or its logits."""
            cached = (prefix.size + tokens) // _PREFIX_SHARE
            return max(tokens, cached, self.task.row_tokens)

        # On a GPU, by their total cost.
        if model.cuts is not None:
            return model.cuts.micro_batches(own, lambda most: model.token_budget // weight(most))

        # On a CPU in order; rows of equal weight may still differ in length.
        order = list(range(len(rows)))
        if model.fast.sorted:
            order.sort(key=lambda row: -own[row])
        weights = [weight(own[row]) for row in order]
        batches = micro_batches(weights, model.token_budget, in_order=True, multiple=model.lanes)
        return ([order[place] for place in batch] for batch in batches)

    def _own(self, rows: Sequence[R], prefix: Prefix) -> list[int]:
        """Return the number of tokens per row computed after the prefix, padding included."""
        step = self.model.length_step
        return [rounded_up(len(row.ids) - prefix.size, step) for row in rows]

    def _computed(self, batch: MicroBatch[R]) -> int:
        """Return the number of tokens that a micro-batch computes, padding included."""
        return sum(self._own(batch.rows, batch.prefix))

    # ------------------------------------------------------------ queue, fetch, emit

    @property
    def _overlaps(self) -> bool:
        """True if a micro-batch is queued before the previous one has been fetched."""
        return self.model.overlap and self.model.fast.overlap

    def _queue(self, batch: MicroBatch[R]) -> InFlight[R, H]:
        """Submit a micro-batch to the owner thread, unless the call was stopped."""
        error = batch.error or self._stopped
        if error is not None:
            return InFlight(batch, error)
        try:
            return InFlight(batch, self.owner.submit(partial(self._compute, batch)))
        except RequestError as refused:
            return InFlight(batch, refused)

    def _compute(self, batch: MicroBatch[R]) -> Ran[R, H]:
        """Run one micro-batch on the owner thread; on a CPU, read its values in the same job.

        The same for a single text, after which nothing is queued: it takes only one job.
        """
        self.check()
        single = batch.alone and len(batch.rows) == 1
        if single and not batch.prefix.size:
            batch = replace(batch, prefix=self._prefixes.after_recent(batch.rows[0]))
        learns = batch.alone and self.task.depth is None
        learned = self._prefixes.learn(batch.rows, batch.prefix) if learns else []

        # The network: on all cores, or queued on a GPU; or in lanes.
        jobs = self._lanes(batch, any(learned))
        if len(jobs) == 1:
            parts = [jobs[0](self.check)]
        else:
            parts = lanes.run([partial(_evaluated, job) for job in jobs], self.check)

        # The LM head, and the values read from its logits.
        queued = self.task.queue(batch.rows, parts, self.check)
        values = queued if self._overlaps and not single else queued.read()
        if any(learned):
            self._prefixes.keep(batch.rows, batch.prefix, parts, learned)
        return Ran(batch, values)

    def _lanes(self, batch: MicroBatch[R], keep: bool) -> Sequence[lanes.Job[Prefill]]:
        """Return each lane's forward pass; ``keep``: with keys and values.

        ``keep``: with keys and values.
        """
        model, rows, prefix = self.model, batch.rows, batch.prefix
        prompts, positions = [row.ids for row in rows], self.task.positions(rows)
        keep = keep or self.task.keeps_cache(rows)

        jobs = []
        for part in lane_parts(self._own(rows, prefix), model.lanes):
            some, places = [prompts[row] for row in part], [positions[row] for row in part]
            step, size = model.length_step, model.cuts.with_padding(len(some)) if model.cuts else 0
            run = partial(read, model.decoder, some, places, prefix, model.fast, step)
            run = partial(run, inputs=self.task.inputs, depth=self.task.depth)
            jobs.append(partial(run, keep=keep, batch_size=size))
        return jobs

    def _fetch(self, running: InFlight[R, H]) -> Fetched[R, H]:
        """Wait for a micro-batch, and on a GPU have the owner thread read its values."""
        batch, job = running.batch, running.job
        if isinstance(job, RequestError):
            return Fetched(batch, None, job)

        try:
            batch, values = awaited(job, self.check)
            if isinstance(values, OnDevice):
                values = self.owner.run(values.read, self.check)
            tokens = partial(self._computed, batch)
            log_batch(_LOG, len(batch.rows), tokens, running.since)
            return Fetched(batch, values)
        except RequestError as error:
            job.cancel()
            if isinstance(error, STOPPED):
                self._stopped = error  # the rest of the call is not queued
            return Fetched(batch, None, error.with_traceback(None))  # its frames reference the pass
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return Fetched(batch, None, error.with_traceback(None))

    def _emit(self, fetched: Fetched[R, H]) -> Iterator[tuple[R, A]]:
        """Yield the results of a micro-batch; if out of memory, run its halves instead."""
        batch, rows, error = fetched.batch, fetched.batch.rows, fetched.error
        if fetched.values is not None:
            results = self.task.results(fetched.values)
            self._count(batch, results)
            yield from zip(rows, results, strict=True)
        elif isinstance(error, RequestError):
            yield from ((row, self.task.failed(error)) for row in rows)
        elif self._prefixes.forget():
            yield from self._emit(self._fetch(self._queue(batch)))
        elif len(rows) == 1:
            yield rows[0], self.task.failed(too_large(len(rows[0].ids)))
        else:
            for half in batch.halves():
                yield from self._emit(self._fetch(self._queue(half)))

    def _count(self, batch: MicroBatch[R], results: Sequence[A]) -> None:
        """Count the prefix of all finished rows, except the tokens computed for the first."""
        self.reused += batch.prefix.size * sum(result.error is None for result in results)
        if results[0].error is None:
            self.reused -= batch.computed


def lane_parts(own: Sequence[int], most: int) -> list[list[int]]:
    """Return the rows of each lane; a single lane if others would wait too long for it."""
    if most > 1 and sum(own) >= most * _WORTH:
        parts = even_parts(own, most)
        longest = max(padded([own[row] for row in part]) for part in parts)
        if longest * most * _COST <= padded(own):
            return parts
    return [list(range(len(own)))]


def _evaluated(job: lanes.Job[Prefill], check: Check) -> Prefill:
    """Run one lane's part, and wait until it is computed."""
    part = job(check)
    mx.eval(part.hidden, part.cache, *part.inputs.values())
    return part
