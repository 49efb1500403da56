"""Running requests: a prompt in chunks, then one token per step.

Both are spans (`core_runtime.sequences.spans.Span`), which a step packs into a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core_runtime.request import Request, own_error
from core_runtime.sequences.pool import Lease, Pool
from core_runtime.sequences.prefixes import KeptPrefixes
from core_runtime.sequences.sampling import Sampler, logprob
from core_runtime.sequences.session import Logits, Session
from core_runtime.waiting import PromptJob


class Tenancy:
    """The part of the context that a job's requests use; the last to end gives it back."""

    def __init__(self, session: Session, pool: Pool, lease: Lease) -> None:
        self.lease = lease
        self._session, self._pool = session, pool
        self._left = len(lease.sequences)

    def restore(self, prompt: Sequence[int], prefixes: KeptPrefixes) -> int:
        """Fill the first sequence with the cached prefix of a prompt, without its last token."""
        return prefixes.restore(prompt, len(prompt) - 1, self.lease, self._pool)

    def leave(self, sequence: int) -> None:
        """Empty the sequence of an ended request."""
        self._session.drop(sequence)
        self._left -= 1
        if not self._left:
            self._pool.give(self.lease)


class Decoding:
    """A request whose prompt is in the cache. ``position``: position of its next token.

    ``window``: positions that it may have; beyond, the oldest are dropped. They are not renumbered:
    only distances count.
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
        """Drop the oldest position if the next token would exceed the window."""
        if self.position - self._oldest >= self._window:
            self._session.drop(self.sequence, self._oldest, self._oldest + 1)
            self._oldest += 1

    def read(self, place: int, logits: Logits) -> None:
        """Take the logits after the token that was fed."""
        self.take(logits)

    def fail(self, error: Exception) -> None:
        """End the request with this error."""
        self.request.fail(own_error(error))

    def keep(self, prefixes: KeptPrefixes) -> None:
        """Cache prompt and answer, unless their beginning was dropped."""
        if not self._oldest:
            prefixes.keep([*self.request.ids, *self.request.tokens], self.sequence)

    def leave(self) -> None:
        """Give back the request's sequence."""
        self._tenancy.leave(self.sequence)


class JobPrefill:
    """The prefill of a job's prompt. ``joined`` gets the rows that continue it.

    A prefix in the cache ``prefixes`` is not computed again.
    """

    def __init__(
        self,
        job: PromptJob,
        session: Session,
        tenancy: Tenancy,
        window: int,
        joined: Callable[[Decoding], None],
        prefixes: KeptPrefixes,
    ) -> None:
        self.job, self._session, self._tenancy = job, session, tenancy
        self._window, self._joined, self._prefixes = window, joined, prefixes
        self.sequence = tenancy.lease.sequences[0]
        self.position = tenancy.restore(job.ids, prefixes)
        self.ids: Sequence[int] = ()
        self.reads = 0
        self.over = False  # joined, or failed
        for request in job.requests:
            request.cached = self.position
            request.begin()

    def chunk(self, size: int) -> None:
        """Become the span of the next ``size`` tokens, or of the rest."""
        self.position += len(self.ids)
        self.ids = self.job.ids[self.position : self.position + size]
        self.reads = int(self.position + len(self.ids) == len(self.job.ids))

    def again(self) -> None:
        """Repeat the last chunk next time, because its pass was interrupted."""
        if not self.over:
            self._session.drop(self.sequence, self.position)
            self.ids = ()

    def read(self, place: int, logits: Logits) -> None:
        """Take the logits at the prompt's end, from which all requests of the job continue."""
        self._prefixes.keep_prompt(self.job.ids, self.sequence)
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
        """End all requests of the job with this error."""
        self.over = True
        for request in self.job.requests:
            request.fail(own_error(error))
        self.leave()

    def leave(self) -> None:
        """Give back all of the job's sequences; none of its requests continues."""
        for sequence in self._tenancy.lease.sequences:
            self._tenancy.leave(sequence)


def _begin(row: Decoding, logits: Logits) -> None:
    try:
        row.take(logits)
    except Exception as error:  # noqa: BLE001 - of this request, not of the job's others
        row.fail(error)
