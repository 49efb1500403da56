"""The decode engine: requests wait, are prefilled, and decode side by side in a few slots.

Everything but `Engine.submit` runs on the model's owner thread, one step at a time; other work of
that thread (classify, close) comes in between two steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from queue import SimpleQueue
from typing import TypeVar

import mlx.core as mx

from core.errors import ModelClosedError
from core.serving.batching import micro_batches
from core.serving.owner import OwnerThread
from core.serving.stopwatch import Stopwatch
from core.serving.waiting import Job, WaitingLine
from core_mlx_native.decoding import DecodeBatch, Rows
from core_mlx_native.failures import not_a_number, of_request
from core_mlx_native.host import ints
from core_mlx_native.loader import LoadedModel
from core_mlx_native.prefilling import Prefilling

T = TypeVar("T")


class Engine:
    """Serves all generation of one model."""

    def __init__(self, model: LoadedModel, owner: OwnerThread) -> None:
        self._model, self._owner = model, owner
        self._shape = model.cache_shape()
        self._batch = DecodeBatch(model.decoder, model.overlap)
        self._waiting = WaitingLine()
        self._prefills: deque[Prefilling] = deque()
        self._admitted: list[Job] = []  # neither there nor here, for a moment
        self._pumping = False
        self.watch = Stopwatch()

    def submit(self, jobs: Iterable[Job]) -> None:
        """Queue jobs, in order; from any thread. Raises `ModelClosedError`."""
        self._owner.check_fork()
        self._waiting.extend(jobs)
        if not self._owner.post(self._wake):
            raise ModelClosedError

    def receive(self, items: SimpleQueue[T]) -> T:
        """Wait for what a request sends. Raises what `OwnerThread.receive` does."""
        return self._owner.receive(items)

    @property
    def idle(self) -> bool:
        """Whether no request is in here."""
        return not (self._waiting or self._prefills or self._batch.live)

    def step(self) -> bool:
        """Admit, prefill one chunk, decode one token a row. False: there was nothing to do."""
        if self.idle:
            return False
        self._drop_unwanted()
        self._admit()
        with self.watch.on("prefill"):
            self._prefill()
        with self.watch.on("decode"):
            self._decode()
        return True

    def shutdown(self, error: BaseException) -> None:
        """End every request with this error, and hold nothing more."""
        jobs = [*self._admitted, *self._waiting.clear()]
        jobs += [job for group in self._prefills for job in group.jobs]
        requests = [*self._batch.requests, *(r for job in jobs for r in job.requests)]
        self._admitted = []
        self._prefills.clear()
        self._batch.clear()
        for request in requests:
            request.fail(of_request(error, len(request.ids)))

    def _wake(self) -> None:
        if not self._pumping:
            self._pumping = True
            self._pump()

    def _pump(self) -> None:
        try:
            self.step()
        except BaseException as error:  # noqa: BLE001 - the thread goes on; the callers get it
            self.shutdown(error)
        if self.idle:
            self._pumping = False
            self._batch.clear()  # an idle model holds its weights only
        else:
            self._owner.post(self._pump)

    def _drop_unwanted(self) -> None:
        self._waiting.sweep()
        for request in self._batch.requests:
            error = None if request.ended else request.interruption()
            if error is not None:
                request.fail(error)
        for group in list(self._prefills):
            wanted = [row for row, job in enumerate(group.jobs) if job.wanted()]
            if not wanted:
                self._prefills.remove(group)
            elif len(wanted) < group.rows:
                group.keep(wanted)

    def _admit(self) -> None:
        taken = self._batch.live + sum(len(j.requests) for g in self._prefills for j in g.jobs)
        jobs = self._waiting.take(self._model.slots - taken, anyhow=not taken)
        self._admitted = jobs
        lengths = [len(job.ids) for job in jobs]
        for rows in micro_batches(lengths, self._model.token_budget):
            self._prefills.append(self._prefilling([jobs[row] for row in rows]))
        self._admitted = []

    def _prefilling(self, jobs: Sequence[Job]) -> Prefilling:
        return Prefilling(self._model.decoder, self._shape, jobs)

    def _prefill(self) -> None:
        """One chunk of the group whose turn it is: a long prompt does not hold up a short one."""
        if not self._prefills:
            return
        group = self._prefills[0]  # it stays there meanwhile: whatever happens, its callers hear
        try:
            group.step(self._model.prefill_chunk)
        except Exception as error:  # noqa: BLE001 - the callers get it
            self._give_up(group, error)
            return
        if group.logits is None:
            self._prefills.rotate(-1)
        else:
            self._join(group, group.logits)
            self._prefills.popleft()

    def _give_up(self, group: Prefilling, error: Exception) -> None:
        """A group that failed is tried again one by one; a prompt alone has had its chance."""
        again = [self._prefilling([job]) for job in group.jobs] if group.rows > 1 else []
        self._prefills.popleft()
        if again:
            self._prefills.extendleft(reversed(again))
            return
        job = group.jobs[0]
        for request in job.requests:
            request.fail(of_request(error, len(job.ids)))

    def _join(self, group: Prefilling, logits: mx.array) -> None:
        """Prefilled prompts start to decode, with a row for each of their requests."""
        broken = ints(mx.isnan(logits).any(axis=-1))
        rows: list[int] = []
        requests = []
        for row, job in enumerate(group.jobs):
            for request in job.requests:
                if broken[row]:
                    request.fail(not_a_number())
                elif not request.ended:
                    rows.append(row)
                    requests.append(request)
        if rows:
            group.cache.keep(rows)
            new = Rows.of(requests, self._model.config.vocab_size)
            self._batch.add(group.cache, new, new.draw(logits[mx.array(rows)]))

    def _decode(self) -> None:
        try:
            self._batch.step()
        except Exception as error:  # noqa: BLE001 - the callers get it
            for request in self._batch.requests:
                request.fail(of_request(error, len(request.ids)))
            self._batch.clear()
        if not (self._waiting or self._prefills):
            self._batch.compact()  # else a new row may take the place of one that has ended
