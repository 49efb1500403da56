"""The decode engine: requests wait, are prefilled, and decode side by side in a few slots.

Everything but `Engine.submit` runs on the model's owner thread, one step at a time; other work of
that thread (classify, close) comes in between two steps.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence

import mlx.core as mx

from core.errors import ModelClosedError
from core_mlx_native.batching import micro_batches
from core_mlx_native.decoding import DecodeBatch, Rows
from core_mlx_native.failures import is_out_of_memory, not_a_number, too_large
from core_mlx_native.host import ints
from core_mlx_native.loader import LoadedModel
from core_mlx_native.owner import OwnerThread
from core_mlx_native.prefilling import Prefilling
from core_mlx_native.waiting import Job, WaitingLine


class Engine:
    """Serves all generation of one model."""

    def __init__(self, model: LoadedModel, owner: OwnerThread) -> None:
        self._model, self._owner = model, owner
        self._shape = model.cache_shape()
        self._batch = DecodeBatch(model.decoder, self._shape, model.overlap)
        self._waiting = WaitingLine()
        self._prefills: deque[Prefilling] = deque()
        self._pumping = False
        self.prefill_seconds = 0.0  # of all steps so far
        self.decode_seconds = 0.0

    def submit(self, jobs: Iterable[Job]) -> None:
        """Queue jobs, in order; from any thread. Raises `ModelClosedError`."""
        self._waiting.extend(jobs)
        if not self._owner.post(self._wake):
            raise ModelClosedError

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
        start = time.monotonic()
        self._prefill()
        middle = time.monotonic()
        self._decode()
        self.prefill_seconds += middle - start
        self.decode_seconds += time.monotonic() - middle
        return True

    def shutdown(self, error: Exception) -> None:
        """End every request with this error, and hold nothing more."""
        jobs = [*self._waiting.clear(), *(job for group in self._prefills for job in group.jobs)]
        requests = [*self._batch.requests, *(r for job in jobs for r in job.requests)]
        self._prefills.clear()
        self._batch.clear()
        for request in requests:
            request.fail(error)

    def _wake(self) -> None:
        if not self._pumping:
            self._pumping = True
            self._pump()

    def _pump(self) -> None:
        try:
            self.step()
        except Exception as error:  # noqa: BLE001 - the thread goes on; the callers get it
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
        lengths = [len(job.ids) for job in jobs]
        for rows in micro_batches(lengths, self._model.token_budget):
            self._prefills.append(self._prefilling([jobs[row] for row in rows]))

    def _prefilling(self, jobs: Sequence[Job]) -> Prefilling:
        return Prefilling(self._model.decoder, self._shape, jobs)

    def _prefill(self) -> None:
        """One chunk of the group whose turn it is: a long prompt does not hold up a short one."""
        if not self._prefills:
            return
        group = self._prefills.popleft()
        try:
            group.step(self._model.prefill_chunk)
        except (MemoryError, RuntimeError) as error:
            self._give_up(group, error)
            return
        if group.logits is None:
            self._prefills.append(group)
        else:
            self._join(group, group.logits)

    def _give_up(self, group: Prefilling, error: Exception) -> None:
        """A group that failed is tried again one by one; a prompt alone has had its chance."""
        if group.rows > 1:
            self._prefills.extendleft(self._prefilling([job]) for job in reversed(group.jobs))
            return
        job = group.jobs[0]
        for request in job.requests:
            request.fail(too_large(len(job.ids)) if is_out_of_memory(error) else error)

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
        except (MemoryError, RuntimeError) as error:
            for request in self._batch.requests:
                request.fail(too_large(len(request.ids)) if is_out_of_memory(error) else error)
            self._batch.clear()
        if not (self._waiting or self._prefills):
            self._batch.compact()  # else a new row may take the place of one that has ended
