"""The rows that decode together, one token each a step.

The next step is handed to MLX before the tokens of the one before are read, so that the host's
work on them (text, stop strings, queues) goes on beside it.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from core.serving.request import Request
from core_mlx_native.decoder import Decoder
from core_mlx_native.failures import of_request
from core_mlx_native.host import floats, ints
from core_mlx_native.kv_cache import BatchCache
from core_mlx_native.penalty import Repeats
from core_mlx_native.sampling import RowSampling, draw, logprobs


class Drawn:
    """One drawn token a row, perhaps not computed yet: ``tokens`` [B]; ``logprobs`` [B] if asked.

    Arrays of a step that is in flight keep its views of the cache alive (see `kv_cache`).
    """

    def __init__(self, tokens: mx.array, logprobs: mx.array | None) -> None:
        self.tokens, self.logprobs = tokens, logprobs

    def arrays(self) -> list[mx.array]:
        """What there is to evaluate."""
        return [self.tokens] if self.logprobs is None else [self.tokens, self.logprobs]

    def give(self, rows: Sequence[Request]) -> None:
        """Wait for the tokens and hand each one to its row."""
        values = floats(self.logprobs) if self.logprobs is not None else [0.0] * len(rows)
        for row, token, logprob in zip(rows, ints(self.tokens), values, strict=True):
            if not row.ended:
                try:
                    row.take(token, logprob if row.config.return_logprobs else None)
                except Exception as error:  # noqa: BLE001 - of this row's text, not of the others'
                    row.fail(of_request(error, len(row.ids)))

    def take(self, rows: Sequence[int]) -> Drawn:
        """Some of the rows."""
        index = mx.array(list(rows))
        return Drawn(self.tokens[index], None if self.logprobs is None else self.logprobs[index])

    def joined(self, other: Drawn) -> Drawn:
        """These rows, then the other's."""
        tokens = mx.concatenate([self.tokens, other.tokens])
        if self.logprobs is None and other.logprobs is None:
            return Drawn(tokens, None)
        return Drawn(tokens, mx.concatenate([self._logprobs(), other._logprobs()]))

    def _logprobs(self) -> mx.array:
        return mx.zeros(len(self.tokens)) if self.logprobs is None else self.logprobs


class Rows:
    """Requests, and what sampling their next tokens takes. One that has ended is a free row."""

    def __init__(self, requests: Sequence[Request], repeats: Repeats) -> None:
        self.requests, self.repeats = list(requests), repeats
        self._sampling = RowSampling.of([request.config for request in requests])
        self._wants_logprobs = any(request.config.return_logprobs for request in requests)

    @classmethod
    def of(cls, requests: Sequence[Request], vocab_size: int) -> Rows:
        """Rows that have seen their prompts."""
        penalties = [request.config.repeat_penalty for request in requests]
        prompts = [request.ids for request in requests]
        return cls(requests, Repeats.of(prompts, penalties, vocab_size))

    def draw(self, logits: mx.array, behind: int = 0) -> Drawn:
        """From logits [B, V]; ``behind`` tokens of each row are drawn, and not read yet."""
        steps = [request.drawn + behind for request in self.requests]
        tokens = draw(self.repeats.penalise(logits), self._sampling, steps)
        return Drawn(tokens, logprobs(logits, tokens) if self._wants_logprobs else None)

    def take(self, rows: Sequence[int]) -> Rows:
        """Some of the rows."""
        return Rows([self.requests[row] for row in rows], self.repeats.take(rows))

    def joined(self, other: Rows) -> Rows:
        """These rows, then the other's."""
        return Rows(self.requests + other.requests, self.repeats.joined(other.repeats))


class DecodeBatch:
    """Rows with their cache, and the tokens that they feed to the next step.

    ``overlap``: a step is queued while the one before still runs. MLX then copies the cache, for
    the running step holds it; on a CPU, where a step takes all cores, waiting costs less.
    """

    def __init__(self, decoder: Decoder, overlap: bool) -> None:
        self._decoder, self._overlap = decoder, overlap
        self.clear()

    def clear(self) -> None:
        """No rows."""
        self._cache: BatchCache | None = None
        self._rows: Rows | None = None
        self._fed: Drawn | None = None

    @property
    def requests(self) -> list[Request]:
        """One per row, ended ones included."""
        return self._rows.requests if self._rows else []

    @property
    def live(self) -> int:
        """How many rows go on."""
        return sum(not request.ended for request in self.requests)

    def add(self, cache: BatchCache, rows: Rows, first: Drawn) -> None:
        """Take prefilled rows and their first tokens, in the place of ended rows if they fit."""
        if self._cache is None or self._rows is None or self._fed is None or not self.live:
            self._cache, self._rows, self._fed = cache, rows, first
            return
        count, new = len(self.requests), len(rows.requests)
        free = [row for row, request in enumerate(self.requests) if request.ended][:new]
        if len(free) < new:
            self.compact()
            self._cache.merge(cache)
            self._rows, self._fed = self._rows.joined(rows), self._fed.joined(first)
            return
        self._cache.replace(free, cache)
        order = list(range(count))
        for position, row in enumerate(free):
            order[row] = count + position
        self._rows = self._rows.joined(rows).take(order)
        self._fed = self._fed.joined(first).take(order)

    def compact(self) -> None:
        """Drop the rows that have ended."""
        going = [row for row, request in enumerate(self.requests) if not request.ended]
        if not going:
            self.clear()
        elif self._cache and self._rows and self._fed and len(going) < len(self.requests):
            self._cache.keep(going)
            self._rows, self._fed = self._rows.take(going), self._fed.take(going)

    def step(self) -> None:
        """Queue one more token for every row, then hand out the ones before."""
        if self._cache is None or self._rows is None or self._fed is None:
            return
        fed, rows = self._fed, self._rows
        if all(request.ended or request.last_is_next for request in rows.requests):
            fed.give(rows.requests)
            return
        view = self._cache.begin()
        hidden = self._decoder(fed.tokens[:, None], view, self._cache.layers)[0]  # [B, 1, H]
        rows.repeats = rows.repeats.after(fed.tokens)
        self._fed = rows.draw(self._decoder.logits(hidden[:, -1]), behind=1)
        if not self._overlap:
            mx.eval(fed.arrays())
        mx.async_eval(self._fed.arrays())
        fed.give(rows.requests)
