"""Prefill of several prompts together, in chunks.

Shapes: B rows, T columns of a chunk, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import mlx.core as mx

from core_mlx_native.decode.kv_cache import BatchCache, CacheShape
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.prefill import Prefix
from core_runtime.threads import LOOK_SECONDS
from core_runtime.waiting import PromptJob


class UnwantedError(Exception):
    """The end of all requests of a group during its prefill."""


def look_at(jobs: Iterable[PromptJob]) -> None:
    """End requests whose time is up; raise `UnwantedError` if none remain."""
    wanted = [job.wanted() for job in jobs]  # call all of them, because each may end here
    if not any(wanted):
        raise UnwantedError


class Prefilling:
    """A few prompts, padded on the left so that all of them end in the last chunk.

    ``prefixes``: the cached prefix of each. Prompts with a prefix have the same number of tokens
    after it, and the others no more than that, so a row's tokens are never separated by padding.
    """

    def __init__(
        self,
        decoder: Decoder,
        shape: CacheShape,
        jobs: Sequence[PromptJob],
        prefixes: Sequence[Prefix],
    ) -> None:
        self.jobs = list(jobs)
        self.cache = BatchCache(shape, len(jobs))
        if any(prefix.size for prefix in prefixes):
            self.cache.start(prefixes)
        self.logits: mx.array | None = None  # [B, V] at each prompt's end, once all chunks ran
        self._decoder = decoder
        self._rest = [job.ids[known.size :] for job, known in zip(jobs, prefixes, strict=True)]
        self._size = max(map(len, self._rest))
        self._done = 0
        self._looked = 0.0
        for job, known in zip(jobs, prefixes, strict=True):
            for request in job.requests:
                request.cached = known.size
                request.begin()

    @property
    def rows(self) -> int:
        """The number of prompts."""
        return len(self.jobs)

    def step(self, tokens: int) -> None:
        """Run one more chunk of about that many tokens, all rows together.

        Raises `UnwantedError` if no request waits for it any longer; the partly written cache is
        then unusable, and nothing else references it.
        """
        self._looked = time.monotonic()

        # The next columns: padding on the left, then the part of each prompt in them.
        size = min(max(1, tokens // self.rows), self._size - self._done)
        start, self._done = self._done, self._done + size
        real = [min(size, max(0, len(ids) - (self._size - self._done))) for ids in self._rest]
        padded = [self._column_ids(ids, start, size) for ids in self._rest]

        # Run them after the cached tokens.
        view = self.cache.begin(size, real)
        layers = self.cache.layers
        hidden, _ = self._decoder(mx.array(padded), view, layers, between=self._look)  # [B, T, H]

        # Logits are only needed at the end.
        if self._done < self._size:
            mx.eval(self.cache.arrays())
            return
        self.logits = self._decoder.logits(hidden[:, -1])
        mx.eval(self.logits, self.cache.arrays())

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all other rows."""
        self.jobs = [self.jobs[row] for row in rows]
        self._rest = [self._rest[row] for row in rows]
        self.cache.keep(rows)

    def _look(self) -> None:
        """Call `look_at` occasionally; the decoder calls this between layers."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        look_at(self.jobs)

    def _column_ids(self, ids: Sequence[int], start: int, size: int) -> list[int]:
        pad = self._size - len(ids)
        first, last = max(0, start - pad), max(0, start + size - pad)
        part = list(ids[first:last])
        return [ids[0]] * (
            size - len(part)
        ) + part  # a mask does not hide NaN, which other tokens might have
