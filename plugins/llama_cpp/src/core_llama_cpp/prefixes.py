"""A beginning that prompts share: computed once, and copied to every sequence."""

from __future__ import annotations

from collections.abc import Sequence

from core_llama_cpp.pool import Lease, Pool
from core_llama_cpp.reading import Reading
from core_llama_cpp.session import Session
from core_llama_cpp.spans import Runner


class SharedPrefix:
    """The one beginning that is in the cache; on the owner thread. Another one takes its place."""

    def __init__(self, session: Session, pool: Pool, runner: Runner) -> None:
        self._session, self._pool, self._runner = session, pool, runner
        self._ids: Sequence[int] = ()
        self._lease: Lease | None = None

    def missing(self, ids: Sequence[int]) -> int:
        """The cells that `use` would take, those aside that it would give back."""
        return 0 if self._lease and self._ids == ids else len(ids)

    def use(self, ids: Sequence[int]) -> int | None:
        """The sequence that holds these tokens; None for none of them.

        Raises ValueError where the pool has no room for it, `DecodeError`.
        """
        if self._lease is None or self._ids != ids:
            self.drop()
            if not ids:
                return None
            self._compute(ids)
        return self._lease.sequences[0] if self._lease else None

    def drop(self) -> None:
        """Give its cells back."""
        if self._lease is not None:
            self._session.drop(self._lease.sequences[0])
            self._pool.give(self._lease)
            self._ids, self._lease = (), None

    def _compute(self, ids: Sequence[int]) -> None:
        self._ids, self._lease = ids, self._pool.take(len(ids), 1)
        span = Reading(ids, 0, self._lease.sequences[0], reads=0)
        self._runner.run([span])
        if span.error is not None:
            self.drop()
            raise span.error
