"""The engine: requests wait, are prefilled in chunks, and decode side by side.

A step is one ``llama_decode``: a token of every row that decodes, and as much of the waiting
prompts as there is room for. Everything but `Engine.submit` and `Engine.receive` runs on the
model's owner thread; other work of that thread (classify, score, close) comes between two steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from queue import SimpleQueue
from typing import Protocol, TypeVar

from core.errors import ModelClosedError
from core.serving.failures import own_error
from core.serving.owner import OwnerThread
from core.serving.served import ENDLESS, ServedModel, room
from core.serving.stopwatch import Stopwatch
from core.serving.waiting import Job, WaitingLine
from core_llama_cpp.decoding import Decoding, Prefilling, Tenancy
from core_llama_cpp.pool import Pool
from core_llama_cpp.session import Session
from core_llama_cpp.spans import Runner, Span

T = TypeVar("T")


class EngineModel(ServedModel, Protocol):
    """A loaded model, as far as the engine looks at it."""

    @property
    def session(self) -> Session:
        """What computes."""
        ...

    @property
    def slots(self) -> int:
        """Requests that decode together."""
        ...


class Engine:
    """Serves all generation of one model."""

    def __init__(self, model: EngineModel, owner: OwnerThread, pool: Pool) -> None:
        self._model, self._owner, self._pool = model, owner, pool
        self._runner = Runner(model.session)
        self._waiting = WaitingLine()
        self._next: deque[Job] = deque()  # taken from the line; they wait for cells
        self._prefills: deque[Prefilling] = deque()
        self._rows: list[Decoding] = []
        self._pumping = False
        self.watch = Stopwatch()

    def submit(self, jobs: Iterable[Job]) -> None:
        """Queue jobs, in order; from any thread. Raises `ModelClosedError`."""
        self._owner.check_fork()
        self._waiting.extend([part for job in jobs for part in self._parts(job)])
        if not self._owner.post(self.wake):
            raise ModelClosedError

    def receive(self, items: SimpleQueue[T]) -> T:
        """Wait for what a request sends. Raises what `OwnerThread.receive` does."""
        return self._owner.receive(items)

    @property
    def idle(self) -> bool:
        """Whether no request is in here."""
        return not (self._waiting or self._next or self._computing)

    def wake(self) -> None:
        """Go on, if there is something to do: a request came, or cells were given back."""
        if not self._pumping:
            self._pumping = True
            self._pump()

    def step(self, admit: bool = True) -> bool:
        """Compute one batch. False: there was nothing to compute."""
        try:
            self._drop_unwanted()
            if admit:
                self._admit()
            if not self._computing:
                return False
            self._compute()
        except BaseException as error:  # noqa: BLE001 - the thread goes on; the callers get it
            self.shutdown(error)
        return True

    def make_room(self, cells: int, sequences: int) -> None:
        """Run on, and let nobody in, until so much is free, or all that run have ended."""
        while not self._pool.has(cells, sequences) and self._computing:
            self.step(admit=False)

    def shutdown(self, error: BaseException) -> None:
        """End every request with this error, and hold nothing more."""
        jobs = [*self._next, *self._waiting.clear(), *(p.job for p in self._prefills)]
        requests = [row.request for row in self._rows]
        requests += [request for job in jobs for request in job.requests]
        self._next.clear()
        self._leave_all()
        for request in requests:
            request.fail(own_error(error))

    @property
    def _computing(self) -> bool:
        return bool(self._rows or self._prefills)

    def _pump(self) -> None:
        if self.step():
            self._owner.post(self._pump)
            return
        # Nothing computes. What still waits does so for cells that somebody else has: whoever
        # gives them back wakes the engine.
        self._pumping = False

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
            error = None if row.request.ended else row.request.interruption()
            if error is not None:
                row.request.fail(error)
        for prefill in [prefill for prefill in self._prefills if not prefill.job.wanted()]:
            self._prefills.remove(prefill)
            prefill.leave()
        self._drop_ended()

    def _drop_ended(self) -> None:
        for row in self._rows:
            if row.request.ended:
                row.leave()
        self._rows = [row for row in self._rows if not row.request.ended]

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
        self._prefills.append(Prefilling(job, session, tenancy, window, self._join))

    def _join(self, row: Decoding) -> None:
        self._rows.append(row)

    def _compute(self) -> None:
        for row in self._rows:
            row.make_place()
        rows: list[Span] = [*self._rows]
        chunks = list(self._chunks(self._model.session.n_batch - len(rows)))
        work = sum(len(chunk.ids) for chunk in chunks)
        with self.watch.on("prefill" if work > len(rows) else "decode"):
            self._runner.run([*rows, *chunks])
        self._prefills = deque(prefill for prefill in self._prefills if not prefill.over)
        self._prefills.rotate(-1)  # a long prompt does not hold up the others
        self._drop_ended()

    def _chunks(self, room: int) -> Iterator[Prefilling]:
        for prefill in self._prefills:
            if room <= 0:
                return
            prefill.chunk(room)
            room -= len(prefill.ids)
            yield prefill

    def _cells(self, job: Job) -> int:
        """The most cells that its requests may come to need, together."""
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
