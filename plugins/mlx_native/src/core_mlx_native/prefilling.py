"""Prompts on their way into the cache: several together, in chunks.

Shapes: B rows, T columns of a chunk, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from core.serving.waiting import Job
from core_mlx_native.decoder import Decoder
from core_mlx_native.kv_cache import BatchCache, CacheShape


class Prefilling:
    """A few prompts, padded on the left so that all of them end in the last chunk."""

    def __init__(self, decoder: Decoder, shape: CacheShape, jobs: Sequence[Job]) -> None:
        self.jobs = list(jobs)
        self.cache = BatchCache(shape, len(jobs))
        self.logits: mx.array | None = None  # [B, V] at each prompt's end, when all is done
        self._decoder = decoder
        self._size = max(len(job.ids) for job in jobs)
        self._done = 0
        for job in jobs:
            for request in job.requests:
                request.begin()

    @property
    def rows(self) -> int:
        """How many prompts."""
        return len(self.jobs)

    def step(self, tokens: int) -> None:
        """Run one more chunk of about so many tokens, all rows together."""
        size = min(max(1, tokens // self.rows), self._size - self._done)
        start, self._done = self._done, self._done + size
        real = [min(size, max(0, len(job.ids) - (self._size - self._done))) for job in self.jobs]
        padded = [self._column_ids(job.ids, start, size) for job in self.jobs]
        view = self.cache.begin(size, real)
        hidden = self._decoder(mx.array(padded), view, self.cache.layers)[0]  # [B, T, H]
        if self._done < self._size:
            mx.eval(self.cache.arrays())
            return
        self.logits = self._decoder.logits(hidden[:, -1])
        mx.eval(self.logits, self.cache.arrays())

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows only."""
        self.jobs = [self.jobs[row] for row in rows]
        self.cache.keep(rows)

    def _column_ids(self, ids: Sequence[int], start: int, size: int) -> list[int]:
        pad = self._size - len(ids)
        first, last = max(0, start - pad), max(0, start + size - pad)
        part = list(ids[first:last])
        return [0] * (size - len(part)) + part
