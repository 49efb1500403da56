"""The engine: requests wait, are prefilled in chunks, and decode concurrently.

A step is one ``decode``: a token of every decoding row, and as much of the waiting prompts as
fits. Everything except `submit` and `receive` runs on the model's owner thread; other work of that
thread (classify, score, close) runs between two steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Protocol, TypeVar

from core.kit.base import Check, never_stop
from core_runtime.engine import Engine
from core_runtime.owner import OwnerThread
from core_runtime.request import Request
from core_runtime.sequences.pool import Pool
from core_runtime.sequences.prefixes import KeptPrefixes
from core_runtime.sequences.rows import Decoding, JobPrefill, Tenancy
from core_runtime.sequences.session import InterruptedPassError, Session
from core_runtime.sequences.spans import Span, SpanRunner
from core_runtime.served import ENDLESS, ServedModel, room
from core_runtime.waiting import PromptJob

T = TypeVar("T")


class EngineModel(ServedModel, Protocol):
    """The part of a loaded model that the engine uses."""

    @property
    def session(self) -> Session:
        """The session that computes."""
        ...

    @property
    def slots(self) -> int:
        """The number of requests that decode concurrently."""
        ...

    @property
    def prefixes(self) -> KeptPrefixes:
        """The prefix cache of prompts and answers."""
        ...


class SequenceEngine(Engine):
    """The scheduler of all generations of one model."""

    def __init__(self, model: EngineModel, owner: OwnerThread, pool: Pool) -> None:
        super().__init__(owner)
        self._model, self._pool = model, pool
        self._runner = SpanRunner(model.session)
        self._next: deque[PromptJob] = deque()  # taken from the queue, waiting for cells
        self._prefills: deque[JobPrefill] = deque()
        self._rows: list[Decoding] = []
        self._passing: tuple[Request, ...] = ()  # the requests of the running pass

    def submit(self, jobs: Iterable[PromptJob]) -> None:
        """Queue jobs, in order; from any thread. Raises `ModelClosedError`."""
        super().submit([part for job in jobs for part in self._parts(job)])

    def receive(self, items: SimpleQueue[T], look: Check = never_stop) -> T:
        """Wait for an item of a request; a pass without live requests is interrupted.

        Raises the errors of `OwnerThread.receive`.
        """

        def both() -> None:
            look()
            self._stop_unwanted()

        return super().receive(items, both)

    @property
    def idle(self) -> bool:
        """True if the engine holds no request."""
        return not (self._waiting or self._next or self._computing)

    def make_room(self, cells: int, sequences: int) -> None:
        """Admit no request, and run until enough is free, or all running ones have ended."""
        while not self._pool.has(cells, sequences) and self._computing:
            self._guarded(partial(self._step, admit=False))

    def _step(self, admit: bool = True) -> bool:
        """Compute one batch. Returns False if there was nothing to compute.

        Requests that still wait then need cells of other work, which wakes the engine.
        """
        self._drop_unwanted()
        if admit:
            self._admit()
        if not self._computing:
            return False
        self._compute()
        return True

    def _let_go(self) -> list[Request]:
        jobs = [*self._next, *(prefill.job for prefill in self._prefills)]
        requests = [row.request for row in self._rows]
        requests += [request for job in jobs for request in job.requests]
        self._next.clear()
        self._leave_all()
        return requests

    @property
    def _computing(self) -> bool:
        return bool(self._rows or self._prefills)

    def _leave_all(self) -> None:
        for prefill in self._prefills:
            if not prefill.over:  # otherwise its rows have its cells
                prefill.leave()
        for row in self._rows:
            row.leave()
        self._prefills.clear()
        self._rows.clear()

    def _drop_unwanted(self) -> None:
        self._waiting.sweep()
        self._next = deque(job for job in self._next if job.wanted())
        for row in self._rows:
            row.request.look()
        for prefill in [prefill for prefill in self._prefills if not prefill.job.wanted()]:
            self._prefills.remove(prefill)
            prefill.leave()
        self._drop_ended()

    def _drop_ended(self) -> None:
        for row in self._rows:
            if row.request.ended:
                self._keep(row)
                row.leave()
        self._rows = [row for row in self._rows if not row.request.ended]

    def _keep(self, row: Decoding) -> None:
        """Cache prompt and answer for prompts with the same prefix.

        The cells of rows that decode together are interleaved: where reading them takes a copy for
        each, only a row that runs alone is cached.
        """
        if not self._model.session.caches_lone_rows_only or len(self._rows) == 1:
            row.keep(self._model.prefixes)

    def _admit(self) -> None:
        jobs = [*self._next, *(prefill.job for prefill in self._prefills)]
        taken = len(self._rows) + sum(len(job.requests) for job in jobs)
        self._next.extend(self._waiting.take(self._model.slots - taken, anyhow=False))
        while self._next:  # in order of arrival: a large job is not overtaken
            job = self._next[0]
            if not self._pool.has(self._cells(job), len(job.requests)):
                return
            self._begin(self._next.popleft())

    def _begin(self, job: PromptJob) -> None:
        lease = self._pool.take(self._cells(job), len(job.requests))
        session = self._model.session
        tenancy = Tenancy(session, self._pool, lease)
        window = self._model.info.context_length if self._model.rotates else ENDLESS
        prefixes = self._model.prefixes
        self._prefills.append(JobPrefill(job, session, tenancy, window, self._join, prefixes))

    def _join(self, row: Decoding) -> None:
        self._rows.append(row)

    def _compute(self) -> None:
        for row in self._rows:
            row.make_place()
        rows: list[Span] = [*self._rows]
        chunks = list(self._chunks(self._model.session.n_batch - len(rows)))
        work = sum(len(chunk.ids) for chunk in chunks)

        # A pass counts as the kind of most of its tokens.
        with self.watch.on("prefill" if work > len(rows) else "decode"):
            self._run([*rows, *chunks], chunks)

        self._prefills = deque(prefill for prefill in self._prefills if not prefill.over)
        self._prefills.rotate(-1)  # a long prompt does not delay the others
        self._drop_ended()

    def _run(self, spans: Sequence[Span], chunks: Sequence[JobPrefill]) -> None:
        """Run one pass. If it is interrupted, its requests stay unchanged."""
        prefilled = [request for chunk in chunks for request in chunk.job.requests]
        self._passing = (*(row.request for row in self._rows), *prefilled)
        try:
            self._runner.run(spans)
        except InterruptedPassError:
            for chunk in chunks:
                chunk.again()
        finally:
            self._passing = ()

    def _stop_unwanted(self) -> None:
        """Interrupt the pass if all of its requests have ended, or are abandoned.

        From any thread. While one of them continues, the pass is not interrupted: frequent
        cancels could otherwise stop all progress.
        """
        passing = self._passing
        if passing and all(request.unwanted for request in passing):
            self._model.session.interrupt()

    def _chunks(self, room: int) -> Iterator[JobPrefill]:
        for prefill in self._prefills:
            if room <= 0:
                return
            prefill.chunk(room)
            room -= len(prefill.ids)
            yield prefill

    def _cells(self, job: PromptJob) -> int:
        """Return the most cells that the requests of a job may need together."""
        prompt, most = len(job.ids), self._model.info.context_length
        limits = [min(r.config.max_tokens, room(self._model, prompt)) for r in job.requests]
        if len(limits) == 1:  # the last drawn token is not fed
            return min(prompt + limits[0] - 1, most)
        return prompt + sum(min(limit, most) for limit in limits)

    def _parts(self, job: PromptJob) -> list[PromptJob]:
        """Return the job, or parts of it that fit in the slots and the cache."""
        count = len(job.requests)
        fits = count <= self._model.slots and self._cells(job) <= self._pool.size
        if fits or count == 1:
            return [job]
        halves = job.requests[: count // 2], job.requests[count // 2 :]
        return [part for half in halves for part in self._parts(PromptJob(job.ids, half))]
