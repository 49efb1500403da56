"""Drawing tokens from logits, for many rows at once, each with its own options.

Order: repeat penalty, typical_p, top_p, min_p, top_k, temperature, draw. The filters use the
distribution at temperature 1, as in mlx-lm and the contract. Nothing here waits for a result, so a
step can be queued before the previous tokens are known.

Rows that need the same work are drawn together. A row's work depends only on its own options, so
its token does not depend on its neighbours. The randomness of a draw is a function of the request's
seed and step only: a row's noise is bit-identical whatever else is in the batch. The global random
state is never used.

Shapes: B rows, G rows of a group, V vocabulary, K candidates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

import mlx.core as mx

from core.options import GenerateConfig
from core_mlx_native.sampling import filters
from core_mlx_native.sampling.filters import Limits, Ranked, Repeats, in_blocks
from core_runtime.request import seeded

HONOURED = frozenset({"temperature", "top_k", "typical_p", "top_p", "min_p", "repeat_penalty"})
"""The sampling options that apply here; models refuse all others by name."""

_STRIDE = 0x9E3779B97F4A7C15  # splitmix64's odd constant: steps of one seed lie far apart
# Beyond these, float32 has only 0 and infinity to divide by.
_COLDEST, _HOTTEST = 1e-6, 1e30
_SMALLEST_P = 1e-30
_NO_TOP_K = 2**31 - 1
_NARROWEST = 64  # candidates of a small top_k
_NUCLEUS = 2048  # candidates that nearly always contain the top_p set


def uniforms(seeds: Sequence[int], steps: Sequence[int], size: int) -> mx.array:
    """Return numbers in [0, 1), one row per seed and step, float32: [rows, size].

    ``seeds`` are integers below 2**64. Rows with equal seed and step are equal, and are computed
    once.
    """
    keys = [(seed + step * _STRIDE) % 2**64 for seed, step in zip(seeds, steps, strict=True)]
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}

    words = mx.array([(key >> 32, key & 0xFFFFFFFF) for key in places], mx.uint32)  # mx.random.key
    distinct = mx.vmap(partial(_uniform, size))(words)  # [distinct, size]
    if len(places) == len(keys):
        return distinct
    if len(places) == 1:
        return mx.broadcast_to(distinct, (len(keys), size))
    return distinct[mx.array([places[key] for key in keys])]


def gumbel(uniform: mx.array) -> mx.array:
    """Return Gumbel noise from uniform numbers, like ``mx.random.gumbel``.

    The index of the largest ``logit + noise`` is a draw from softmax(logits): Gumbel-max trick.
    """
    return -mx.log(-mx.log(uniform))


def _uniform(size: int, key: mx.array) -> mx.array:
    return mx.random.uniform(shape=(size,), key=key)


class DrawKind(Enum):
    """The kind of work that a row needs for its draw."""

    GREEDY = auto()  # the best token
    WHOLE = auto()  # noise on the complete vocabulary
    BEST = auto()  # the best tokens in order, as many as top_k requires
    NUCLEUS = auto()  # the best tokens in order, as many as top_p needs


@dataclass(frozen=True, slots=True)
class SamplingGroup:
    """Rows of a batch that need the same work, with their options."""

    work: DrawKind
    width: int  # number of candidates to sort: K
    rows: tuple[int, ...]  # their indices in the batch
    seeds: tuple[int, ...]
    temperature: mx.array  # [G, 1]
    limits: Limits
    by_mass: bool  # the vocabulary is not sorted

    @classmethod
    def of(
        cls,
        work: DrawKind,
        width: int,
        rows: Sequence[int],
        batch: Sequence[GenerateConfig],
        by_mass: bool,
    ) -> SamplingGroup:
        """Group the given rows of a batch, each of which has a seed."""
        configs = [batch[row] for row in rows]
        heat = [min(max(config.temperature, _COLDEST), _HOTTEST) for config in configs]
        seeds = tuple(config.seed or 0 for config in configs)
        return cls(work, width, tuple(rows), seeds, _column(heat), _limits(configs), by_mass)

    def draw(self, logits: mx.array, steps: Sequence[int]) -> mx.array:
        """Draw one token id per row: [G], from logits [G, V]."""
        if self.work is DrawKind.GREEDY:
            return mx.argmax(logits, axis=-1)
        if self.limits.uses_typical_p:
            logits = filters.typical(logits, self.limits, self.by_mass)

        # The noise depends on seed and step, whatever the filters keep.
        uniform = uniforms(self.seeds, steps, logits.shape[-1])  # [G, V]
        if self.work is DrawKind.WHOLE:
            return self._from_all(logits, uniform)
        if self.work is DrawKind.NUCLEUS and self.by_mass:
            return self._from_all(filters.nucleus(logits, self.limits), uniform)

        # Sorting only the best tokens is nearly always enough.
        probabilities = filters.probabilities_of(logits) if self.limits.uses_top_p else None
        ranked = filters.rank(logits, probabilities, self.width)
        tokens = self._from_ranked(ranked, uniform)
        if self.work is DrawKind.BEST or self.width >= logits.shape[-1]:
            return tokens

        # The complete order is always computed. Rows that do not need it are made constant:
        # MLX's sort on a CPU is then seven times faster.
        enough = filters.nucleus_is_inside(ranked, self.limits)  # [G, 1]
        rest = mx.maximum(logits, mx.where(enough, mx.inf, -mx.inf))
        everything = filters.rank(rest, probabilities, logits.shape[-1])
        return mx.where(enough[:, 0], tokens, self._from_ranked(everything, uniform))

    def _from_all(self, logits: mx.array, uniform: mx.array) -> mx.array:
        scores = logits / self.temperature + gumbel(uniform)
        if self.limits.uses_min_p:
            scores = mx.where(filters.below_min_p(logits, self.limits), -mx.inf, scores)
        return mx.argmax(scores, axis=-1)

    def _from_ranked(self, ranked: Ranked, uniform: mx.array) -> mx.array:
        luck = gumbel(mx.take_along_axis(uniform, ranked.ids, axis=-1))
        scores = ranked.logits / self.temperature + luck
        scores = mx.where(filters.passing(ranked, self.limits), scores, -mx.inf)
        best = mx.argmax(scores, axis=-1, keepdims=True)
        return mx.take_along_axis(ranked.ids, best, axis=-1)[:, 0]


def by_work(configs: Sequence[GenerateConfig], by_mass: bool = False) -> tuple[SamplingGroup, ...]:
    """Group rows with these options by the work that each row needs."""
    members: dict[tuple[DrawKind, int], list[int]] = {}
    for row, config in enumerate(configs):
        members.setdefault(_work(config), []).append(row)
    return tuple(SamplingGroup.of(*kind, rows, configs, by_mass) for kind, rows in members.items())


def is_greedy(config: GenerateConfig) -> bool:
    """Return True if the best token is taken, without a draw."""
    return config.temperature < _COLDEST


def _column(values: list[float]) -> mx.array:
    return mx.array(values, mx.float32)[:, None]


def _work(config: GenerateConfig) -> tuple[DrawKind, int]:
    if is_greedy(config):
        return DrawKind.GREEDY, 0
    if config.top_k > 0:
        return DrawKind.BEST, max(_NARROWEST, 1 << (config.top_k - 1).bit_length())
    if config.top_p < 1.0:
        return DrawKind.NUCLEUS, _NUCLEUS
    return DrawKind.WHOLE, 0


def _limits(configs: Sequence[GenerateConfig]) -> Limits:
    top_k = [min(config.top_k or _NO_TOP_K, _NO_TOP_K) for config in configs]
    top_p = [_or_off(config.top_p) for config in configs]
    min_p = [math.log(config.min_p) if config.min_p > 0.0 else -math.inf for config in configs]
    return Limits(
        mx.array(top_k, mx.int32)[:, None],
        _column(top_p),
        _column(min_p),
        _column([_or_off(config.typical_p) for config in configs]),
        any(config.top_p < 1.0 for config in configs),
        any(config.min_p > 0.0 for config in configs),
        any(config.typical_p < 1.0 for config in configs),
    )


def _or_off(limit: float) -> float:
    """Return a limit of cumulative probability, unreachable if disabled (1)."""
    return max(limit, _SMALLEST_P) if limit < 1.0 else math.inf


@dataclass(frozen=True, slots=True)
class RowSampling:
    """The sampling of a decode batch's B rows. Make a new one when rows change."""

    groups: tuple[SamplingGroup, ...]
    order: mx.array | None  # from the groups' order to the batch's; None: they are the same

    @classmethod
    def of(cls, configs: Sequence[GenerateConfig], by_mass: bool = False) -> RowSampling:
        """Make one row per config; ``by_mass`` if sorting the vocabulary is slow (`mass`).

        Raises ValueError for a config without a seed (see `seeded`).
        """
        if any(config.seed is None for config in configs):
            raise ValueError(
                "A row has no seed: pass each request's config through seeded() first."
            )
        groups = by_work(configs, by_mass)
        rows = [row for group in groups for row in group.rows]
        if len(groups) == 1:
            return cls(groups, None)
        return cls(groups, mx.array(sorted(range(len(rows)), key=rows.__getitem__)))


def draw(logits: mx.array, rows: RowSampling, steps: Sequence[int]) -> mx.array:
    """Draw one token id per row, uint32 and not evaluated: [B], from penalised logits [B, V].

    ``steps[b]`` is the number of tokens that row b has drawn; seed and step determine its noise.
    Temperature 0 takes the best token, the lowest id among equals. A row whose logits are all
    -infinity, or contain NaN, gets some id below V.
    """
    logits = logits.astype(mx.float32)
    if rows.order is None:
        return rows.groups[0].draw(logits, steps)
    drawn = [
        group.draw(logits[mx.array(group.rows)], [steps[row] for row in group.rows])
        for group in rows.groups
    ]
    return mx.concatenate(drawn)[rows.order]


def sample(
    logits: mx.array, prompts: Sequence[Sequence[int]], config: GenerateConfig, step: int = 0
) -> mx.array:
    """Draw one token id per row: [B], from raw logits [B, V], all rows with the same options.

    With a seed, every row draws with the same noise, so a row gets the same token as alone.
    """
    count, vocab_size = logits.shape
    repeats = Repeats.of(prompts, [config.repeat_penalty] * count, vocab_size)

    if is_greedy(config):  # no seed per row, which takes longer than the rest
        return mx.argmax(repeats.penalise(logits).astype(mx.float32), axis=-1)
    rows = RowSampling.of([seeded(config) for _ in range(count)])
    return draw(repeats.penalise(logits), rows, [step] * count)


def logprobs(logits: mx.array, tokens: mx.array, total: mx.array | None = None) -> mx.array:
    """Return log-probabilities of tokens [B] over the full vocabulary: [B], from logits [B, V].

    The logits are raw: without penalty, filters or temperature. ``total`` is their `log_total`, if
    known.
    """
    chosen = mx.take_along_axis(logits, tokens[:, None], axis=-1)[:, 0]
    return chosen.astype(mx.float32) - (log_total(logits) if total is None else total)


def log_total(logits: mx.array) -> mx.array:
    """Return the logarithm of the sum of exponentials over the last axis: [...], from [..., V].

    NaN for invalid logits (`network.ops.Ops.broken`).
    """
    parts = mx.logsumexp(in_blocks(logits.astype(mx.float32), -mx.inf), axis=-1)
    total = mx.logsumexp(parts, axis=-1)
    return mx.where(mx.isinf(total), mx.nan, total)
