"""The rows that decode together, one token per row and step.

On a GPU the next step is queued before the tokens of the previous one are read, so the host's work
on them (text, stop strings, queues) overlaps with it.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
from mlx.utils import tree_reduce

from core_mlx_native.decode.kv_cache import BatchCache
from core_mlx_native.failures import not_finite, of_request
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.sampling.filters import Repeats
from core_mlx_native.sampling.sampling import RowSampling, draw, logprobs
from core_mlx_native.to_python import bools, floats, ints
from core_runtime.request import Request

_COPIED_SHARE = 10  # of the weights: a cache below a tenth of them is copied rather than waited for


class DrawnTokens:
    """One drawn token per row, possibly pending: ``tokens`` [B]; ``logprobs`` [B] if requested.

    ``broken`` [B]: whether the row's logits were invalid, so its token is meaningless. Arrays of a
    step that is in flight keep its views of the cache alive (see `kv_cache`).
    """

    def __init__(self, tokens: mx.array, broken: mx.array, logprobs: mx.array | None) -> None:
        self.tokens, self.broken, self.logprobs = tokens, broken, logprobs

    def arrays(self) -> list[mx.array]:
        """Return the arrays to evaluate."""
        known = [self.tokens, self.broken]
        return known if self.logprobs is None else [*known, self.logprobs]

    def give(self, rows: Sequence[Request]) -> None:
        """Wait for the tokens and pass each one to its row."""
        values = floats(self.logprobs) if self.logprobs is not None else [0.0] * len(rows)
        drawn = zip(rows, ints(self.tokens), values, bools(self.broken), strict=True)
        for row, token, logprob, broken in drawn:
            if row.ended:
                continue
            try:
                if broken:
                    raise not_finite()
                row.take(token, logprob if row.config.return_logprobs else None)
            except Exception as error:  # noqa: BLE001 - of this row, not of the others
                row.fail(of_request(error, len(row.ids)))

    def take(self, rows: Sequence[int]) -> DrawnTokens:
        """Return the drawn tokens of some of the rows."""
        index = mx.array(list(rows))
        logprobs = None if self.logprobs is None else self.logprobs[index]
        return DrawnTokens(self.tokens[index], self.broken[index], logprobs)

    def joined(self, other: DrawnTokens) -> DrawnTokens:
        """Return the tokens of these rows, then the other's."""
        tokens = mx.concatenate([self.tokens, other.tokens])
        broken = mx.concatenate([self.broken, other.broken])
        if self.logprobs is None and other.logprobs is None:
            return DrawnTokens(tokens, broken, None)
        return DrawnTokens(tokens, broken, mx.concatenate([self._logprobs(), other._logprobs()]))

    def _logprobs(self) -> mx.array:
        return mx.zeros(len(self.tokens)) if self.logprobs is None else self.logprobs


class SamplingRows:
    """Requests with the state for sampling their next tokens. An ended request is a free row.

    ``by_mass``: see `RowSampling.of`.
    """

    def __init__(
        self, requests: Sequence[Request], repeats: Repeats, by_mass: bool = False
    ) -> None:
        self.requests, self.repeats, self._by_mass = list(requests), repeats, by_mass
        self._sampling = RowSampling.of([request.config for request in requests], by_mass)
        self._wants_logprobs = any(request.config.return_logprobs for request in requests)

    @classmethod
    def of(
        cls, requests: Sequence[Request], vocab_size: int, by_mass: bool = False
    ) -> SamplingRows:
        """Make rows for prefilled prompts."""
        penalties = [request.config.repeat_penalty for request in requests]
        prompts = [request.ids for request in requests]
        return cls(requests, Repeats.of(prompts, penalties, vocab_size), by_mass)

    def draw(self, logits: mx.array, broken: mx.array, pending: int = 0) -> DrawnTokens:
        """Draw a token per row from logits [B, V], some of which may be ``broken`` [B].

        ``pending``: tokens that are already drawn, but not yet passed to the requests.
        """
        steps = [request.drawn + pending for request in self.requests]
        tokens = draw(self.repeats.penalise(logits), self._sampling, steps)
        return DrawnTokens(
            tokens, broken, logprobs(logits, tokens) if self._wants_logprobs else None
        )

    def take(self, rows: Sequence[int]) -> SamplingRows:
        """Return some of the rows."""
        requests = [self.requests[row] for row in rows]
        return SamplingRows(requests, self.repeats.take(rows), self._by_mass)

    def joined(self, other: SamplingRows) -> SamplingRows:
        """Return these rows, then the other's."""
        requests = self.requests + other.requests
        return SamplingRows(requests, self.repeats.joined(other.repeats), self._by_mass)


class DecodeBatch:
    """Rows with their ``cache``, and their input tokens for the next step.

    ``overlap``: a step is queued while the previous one still runs. MLX then copies the cache,
    because the running step uses it. On a CPU, where a step takes all cores, waiting costs less, so
    tokens are passed on before the next step. The same holds for a large cache: a step reads the
    weights, and a copy reads and writes the cache.
    """

    def __init__(self, decoder: Decoder, overlap: bool) -> None:
        self._decoder, self._overlap = decoder, overlap
        weights = tree_reduce(lambda total, array: total + array.nbytes, decoder.parameters(), 0)
        self._copied_at_most = weights // _COPIED_SHARE
        self.clear()

    def clear(self) -> None:
        """Drop all rows and their cache."""
        self.cache: BatchCache | None = None
        self._rows: SamplingRows | None = None
        self._fed: DrawnTokens | None = None

    @property
    def requests(self) -> list[Request]:
        """The request of each row, ended ones included."""
        return self._rows.requests if self._rows else []

    @property
    def live(self) -> int:
        """The number of rows whose requests continue."""
        return sum(not request.ended for request in self.requests)

    def add(self, cache: BatchCache, rows: SamplingRows, first: DrawnTokens) -> None:
        """Add prefilled rows and their first tokens, replacing ended rows if they fit."""
        if self.cache is None or self._rows is None or self._fed is None or not self.live:
            self.cache, self._rows, self._fed = cache, rows, first
            return

        # If too few rows are free, drop the ended ones and append the new ones.
        count, new = len(self.requests), len(rows.requests)
        free = [row for row, request in enumerate(self.requests) if request.ended][:new]
        if len(free) < new:
            self.compact()
            self.cache.merge(cache)
            self._rows, self._fed = self._rows.joined(rows), self._fed.joined(first)
            return

        # New rows replace ended ones: row free[i] becomes the i-th new one, the others stay.
        self.cache.replace(free, cache)
        order = list(range(count))
        for position, row in enumerate(free):
            order[row] = count + position
        self._rows = self._rows.joined(rows).take(order)
        self._fed = self._fed.joined(first).take(order)

    def compact(self) -> None:
        """Drop the ended rows."""
        going = [row for row, request in enumerate(self.requests) if not request.ended]
        if not going:
            self.clear()
        elif self.cache and self._rows and self._fed and len(going) < len(self.requests):
            self.cache.keep(going)
            self._rows, self._fed = self._rows.take(going), self._fed.take(going)

    def step(self) -> None:
        """Queue one more token for every row, and pass on the previous ones."""
        if self.cache is None or self._rows is None or self._fed is None:
            return
        fed, rows = self._fed, self._rows
        if all(request.ended or request.last_is_next for request in rows.requests):
            fed.give(rows.requests)
            return

        # Without overlap a step may be computed when queued: first pass on the tokens.
        if not self._overlap:
            fed.give(rows.requests)
            if not self.live:
                return

        # Queue: the previous step's tokens are fed as arrays, and may still be pending.
        view = self.cache.begin()
        hidden = self._decoder(fed.tokens[:, None], view, self.cache.layers)[0]  # [B, 1, H]
        rows.repeats = rows.repeats.after(fed.tokens)
        logits = self._decoder.logits(hidden[:, -1])
        broken = self._decoder.ops.broken(logits)
        self._fed = rows.draw(logits, broken, pending=1 if self._overlap else 0)

        # Do not copy a large cache: let the previous step, which uses it, end first. The graph
        # of this one is made by then, and what a GPU waits for is its first kernels.
        if self._overlap and self.cache.nbytes > self._copied_at_most:
            mx.eval(fed.arrays())
        mx.async_eval(self._fed.arrays())
        if self._overlap:
            fed.give(rows.requests)
