"""Requests on their way through the model: a prompt in chunks, then one token a step.

Both are spans (`core_llama_cpp.spans`): what a step computes is put together from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.serving.failures import own_error
from core.serving.request import Request
from core.serving.waiting import Job
from core_llama_cpp.pool import Lease, Pool
from core_llama_cpp.sampling import Sampler, logprob
from core_llama_cpp.session import Logits, Session


class Tenancy:
    """What the requests of one job have of the context; the last one to end gives it back."""

    def __init__(self, session: Session, pool: Pool, lease: Lease) -> None:
        self.lease = lease
        self._session, self._pool = session, pool
        self._left = len(lease.sequences)

    def leave(self, sequence: int) -> None:
        """One request has ended: its sequence is emptied."""
        self._session.drop(sequence)
        self._left -= 1
        if not self._left:
            self._pool.give(self.lease)


class Decoding:
    """A request whose prompt is in the cache. ``position``: where its next token stands.

    ``window``: positions that it may have; where there are more, the oldest are dropped. They are
    not renumbered: only distances count.
    """

    reads = 1

    def __init__(
        self, request: Request, session: Session, tenancy: Tenancy, sequence: int, window: int
    ) -> None:
        self.request, self.sequence = request, sequence
        self._session, self._tenancy, self._window = session, tenancy, window
        self._sampler = Sampler(request.config, request.ids)
        self.ids: Sequence[int] = ()
        self.position = len(request.ids) - 1  # of the last token that was computed
        self._oldest = 0

    def take(self, logits: Logits) -> None:
        """Draw the next token and send it."""
        request = self.request
        token = self._sampler.draw(logits, request.drawn)
        wants = request.config.return_logprobs
        request.take(token, logprob(logits, token) if wants else None)
        self.ids, self.position = (token,), self.position + 1

    def make_place(self) -> None:
        """Drop the oldest position where the next token would be one too many."""
        if self.position - self._oldest >= self._window:
            self._session.drop(self.sequence, self._oldest, self._oldest + 1)
            self._oldest += 1

    def read(self, place: int, logits: Logits) -> None:
        """The logits behind the token that was fed."""
        self.take(logits)

    def fail(self, error: Exception) -> None:
        """The request ends with this error."""
        self.request.fail(own_error(error))

    def leave(self) -> None:
        """Give back what it has."""
        self._tenancy.leave(self.sequence)


class Prefilling:
    """A job's prompt on its way into the cache. ``joined`` gets the rows that go on from it."""

    def __init__(
        self,
        job: Job,
        session: Session,
        tenancy: Tenancy,
        window: int,
        joined: Callable[[Decoding], None],
    ) -> None:
        self.job, self._session, self._tenancy = job, session, tenancy
        self._window, self._joined = window, joined
        self.sequence = tenancy.lease.sequences[0]
        self.position = 0
        self.ids: Sequence[int] = ()
        self.reads = 0
        self.over = False  # joined, or failed
        for request in job.requests:
            request.begin()

    def chunk(self, size: int) -> None:
        """Be the span of the next ``size`` tokens, or of what is left."""
        self.position += len(self.ids)
        self.ids = self.job.ids[self.position : self.position + size]
        self.reads = int(self.position + len(self.ids) == len(self.job.ids))

    def read(self, place: int, logits: Logits) -> None:
        """The prompt's end: every request of the job goes on from here."""
        rows = [
            Decoding(request, self._session, self._tenancy, sequence, self._window)
            for request, sequence in zip(
                self.job.requests, self._tenancy.lease.sequences, strict=True
            )
        ]
        self.over = True
        for row in rows:
            if row.sequence != self.sequence:
                self._session.copy(self.sequence, row.sequence)
            self._joined(row)
            if not row.request.ended:
                _begin(row, logits)

    def fail(self, error: Exception) -> None:
        """All requests of the job end with this error."""
        self.over = True
        for request in self.job.requests:
            request.fail(own_error(error))
        self.leave()

    def leave(self) -> None:
        """Give back what it has: not one of its requests goes on."""
        for sequence in self._tenancy.lease.sequences:
            self._tenancy.leave(sequence)


def _begin(row: Decoding, logits: Logits) -> None:
    try:
        row.take(logits)
    except Exception as error:  # noqa: BLE001 - of this request, not of the job's others
        row.fail(error)
