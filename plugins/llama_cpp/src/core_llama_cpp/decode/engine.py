"""The engine: requests wait, are prefilled in chunks, and decode side by side.

A step is one ``llama_decode``: a token of every row that decodes, and as much of the waiting
prompts as there is room for. Everything but `Engine.submit` and `Engine.receive` runs on the
model's owner thread; other work of that thread (classify, score, close) comes between two steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Protocol, TypeVar

from core.clock import Check, never_stop
from core_llama_cpp.context.pool import Pool
from core_llama_cpp.context.prefixes import KeptPrefixes
from core_llama_cpp.context.session import InterruptedPassError, Session
from core_llama_cpp.context.spans import Runner, Span
from core_llama_cpp.decode.batch import Decoding, Prefilling, Tenancy
from core_runtime import engine
from core_runtime.owner import OwnerThread
from core_runtime.request import Request
from core_runtime.served import ENDLESS, ServedModel, room
from core_runtime.waiting import Job

T = TypeVar("T")


class EngineModel(ServedModel, Protocol):
    """A loaded model, as far as the engine looks at it."""

    @property
    def session(self) -> Session:
        """The session that computes."""
        ...

    @property
    def slots(self) -> int:
        """The number of requests that decode together."""
        ...

    @property
    def kept(self) -> KeptPrefixes:
        """What is kept of prompts and answers for the next ones."""
        ...


class Engine(engine.Engine):
    """Serves all generation of one model."""

    def __init__(self, model: EngineModel, owner: OwnerThread, pool: Pool) -> None:
        super().__init__(owner)
        self._model, self._pool = model, pool
        self._runner = Runner(model.session)
        self._next: deque[Job] = deque()  # taken from the line; they wait for cells
        self._prefills: deque[Prefilling] = deque()
        self._rows: list[Decoding] = []
        self._passing: tuple[Request, ...] = ()  # those that the running pass is for

    def submit(self, jobs: Iterable[Job]) -> None:
        """Queue jobs, in order; from any thread. Raises `ModelClosedError`."""
        super().submit([part for job in jobs for part in self._parts(job)])

    def receive(self, items: SimpleQueue[T], look: Check = never_stop) -> T:
        """Wait for what a request sends; a pass that nobody wants any more is interrupted.

        Raises what `OwnerThread.receive` does.
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
        """Let no request in, and run on until so much is free, or all that run have ended."""
        while not self._pool.has(cells, sequences) and self._computing:
            self._guarded(partial(self._step, admit=False))

    def _step(self, admit: bool = True) -> bool:
        """Compute one batch. False: there was nothing to compute.

        What still waits then does so for cells that somebody else has, who wakes the engine.
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
            if not prefill.over:  # else its rows have what it had
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
        """Keep prompt and answer for those that begin like them.

        Rows that decode together lie between one another, cell by cell, and a GPU would be read as
        often: there only of a row alone.
        """
        if not self._model.session.settings.offload or len(self._rows) == 1:
            row.keep(self._model.kept)

    def _admit(self) -> None:
        jobs = [*self._next, *(prefill.job for prefill in self._prefills)]
        taken = len(self._rows) + sum(len(job.requests) for job in jobs)
        self._next.extend(self._waiting.take(self._model.slots - taken, anyhow=False))
        while self._next:  # first come, first served: a large one is not overtaken
            job = self._next[0]
            if not self._pool.has(self._cells(job), len(job.requests)):
                return
            self._begin(self._next.popleft())

    def _begin(self, job: Job) -> None:
        lease = self._pool.take(self._cells(job), len(job.requests))
        session = self._model.session
        tenancy = Tenancy(session, self._pool, lease)
        window = self._model.info.context_length if self._model.rotates else ENDLESS
        kept = self._model.kept
        self._prefills.append(Prefilling(job, session, tenancy, window, self._join, kept))

    def _join(self, row: Decoding) -> None:
        self._rows.append(row)

    def _compute(self) -> None:
        for row in self._rows:
            row.make_place()
        rows: list[Span] = [*self._rows]
        chunks = list(self._chunks(self._model.session.n_batch - len(rows)))
        work = sum(len(chunk.ids) for chunk in chunks)

        # A pass counts as what most of its tokens are.
        with self.watch.on("prefill" if work > len(rows) else "decode"):
            self._run([*rows, *chunks], chunks)

        self._prefills = deque(prefill for prefill in self._prefills if not prefill.over)
        self._prefills.rotate(-1)  # a long prompt does not hold up the others
        self._drop_ended()

    def _run(self, spans: Sequence[Span], chunks: Sequence[Prefilling]) -> None:
        """Run one pass. If it is interrupted, all requests that it is for stay as they were."""
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
        """Interrupt the pass if all requests that it is for have ended, or are abandoned.

        Call this from any thread. While one of them goes on the pass is not ended: many that
        give up would keep it from anything.
        """
        passing = self._passing
        if passing and all(request.unwanted for request in passing):
            self._model.session.interrupt()

    def _chunks(self, room: int) -> Iterator[Prefilling]:
        for prefill in self._prefills:
            if room <= 0:
                return
            prefill.chunk(room)
            room -= len(prefill.ids)
            yield prefill

    def _cells(self, job: Job) -> int:
        """The most cells that the requests of a job may come to need, together."""
        prompt, most = len(job.ids), self._model.info.context_length
        limits = [min(r.config.max_tokens, room(self._model, prompt)) for r in job.requests]
        if len(limits) == 1:  # the last token that is drawn is not fed
            return min(prompt + limits[0] - 1, most)
        return prompt + sum(min(limit, most) for limit in limits)

    def _parts(self, job: Job) -> list[Job]:
        """The job, or halves of it that fit the slots and the cache when they are alone."""
        count = len(job.requests)
        fits = count <= self._model.slots and self._cells(job) <= self._pool.size
        if fits or count == 1:
            return [job]
        halves = job.requests[: count // 2], job.requests[count // 2 :]
        return [part for half in halves for part in self._parts(Job(job.ids, half))]
