"""Rows that need the same work to draw a token, drawn together.

Shapes: G rows of a group, V vocabulary, K candidates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

import mlx.core as mx

from core.options import GenerateConfig
from core_mlx_native import filters, noise
from core_mlx_native.filters import Limits, Ranked

# Beyond these, float32 has only 0 and infinity to divide by.
_COLDEST, _HOTTEST = 1e-6, 1e30
_SMALLEST_P = 1e-30
_NO_TOP_K = 2**31 - 1
_NARROWEST = 64  # candidates of a small top_k
_NUCLEUS = 2048  # candidates among which top_p nearly always ends


class Work(Enum):
    """What a row needs beside the draw itself."""

    GREEDY = auto()  # the best token
    WHOLE = auto()  # noise on the whole vocabulary
    BEST = auto()  # the best tokens in order, as many as top_k asks for
    NUCLEUS = auto()  # the best tokens in order, as many as top_p turns out to need


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of a batch that need the same work, with their options."""

    work: Work
    width: int  # candidates to put in order: K
    rows: tuple[int, ...]  # where they stand in the batch
    seeds: tuple[int, ...]
    temperature: mx.array  # [G, 1]
    limits: Limits

    @classmethod
    def of(
        cls, work: Work, width: int, rows: Sequence[int], batch: Sequence[GenerateConfig]
    ) -> Group:
        """The given rows of a batch, each of which has a seed."""
        configs = [batch[row] for row in rows]
        heat = [min(max(config.temperature, _COLDEST), _HOTTEST) for config in configs]
        seeds = tuple(config.seed or 0 for config in configs)
        return cls(work, width, tuple(rows), seeds, _column(heat), _limits(configs))

    def draw(self, logits: mx.array, steps: Sequence[int]) -> mx.array:
        """One token id per row: [G], from logits [G, V]."""
        if self.work is Work.GREEDY:
            return mx.argmax(logits, axis=-1)
        uniform = noise.uniforms(self.seeds, steps, logits.shape[-1])  # [G, V]
        if self.work is Work.WHOLE:
            return self._from_all(logits, uniform)
        probabilities = filters.probabilities_of(logits) if self.limits.uses_top_p else None
        ranked = filters.rank(logits, probabilities, self.width)
        tokens = self._from_ranked(ranked, uniform)
        if self.work is Work.BEST or self.width >= logits.shape[-1]:
            return tokens
        # The whole order is computed in any case. Rows that do not need it are made constant:
        # MLX's sort on CPU is then seven times faster.
        enough = filters.settled(ranked, self.limits)  # [G, 1]
        rest = mx.maximum(logits, mx.where(enough, mx.inf, -mx.inf))
        everything = filters.rank(rest, probabilities, logits.shape[-1])
        return mx.where(enough[:, 0], tokens, self._from_ranked(everything, uniform))

    def _from_all(self, logits: mx.array, uniform: mx.array) -> mx.array:
        scores = logits / self.temperature + noise.gumbel(uniform)
        if self.limits.uses_min_p:
            scores = mx.where(filters.below_min_p(logits, self.limits), -mx.inf, scores)
        return mx.argmax(scores, axis=-1)

    def _from_ranked(self, ranked: Ranked, uniform: mx.array) -> mx.array:
        luck = noise.gumbel(mx.take_along_axis(uniform, ranked.ids, axis=-1))
        scores = ranked.logits / self.temperature + luck
        scores = mx.where(filters.kept(ranked, self.limits), scores, -mx.inf)
        best = mx.argmax(scores, axis=-1, keepdims=True)
        return mx.take_along_axis(ranked.ids, best, axis=-1)[:, 0]


def grouped(configs: Sequence[GenerateConfig]) -> tuple[Group, ...]:
    """Rows with these options, by the work that each one's own options ask for."""
    members: dict[tuple[Work, int], list[int]] = {}
    for row, config in enumerate(configs):
        members.setdefault(_work(config), []).append(row)
    return tuple(Group.of(*kind, rows, configs) for kind, rows in members.items())


def is_greedy(config: GenerateConfig) -> bool:
    """Whether the best token is taken, without a draw."""
    return config.temperature < _COLDEST


def _column(values: list[float]) -> mx.array:
    return mx.array(values, mx.float32)[:, None]


def _work(config: GenerateConfig) -> tuple[Work, int]:
    if is_greedy(config):
        return Work.GREEDY, 0
    if config.top_k > 0:
        return Work.BEST, max(_NARROWEST, 1 << (config.top_k - 1).bit_length())
    if config.top_p < 1.0:
        return Work.NUCLEUS, _NUCLEUS
    return Work.WHOLE, 0


def _limits(configs: Sequence[GenerateConfig]) -> Limits:
    top_k = [min(config.top_k or _NO_TOP_K, _NO_TOP_K) for config in configs]
    top_p = [
        max(config.top_p, _SMALLEST_P) if config.top_p < 1.0 else math.inf for config in configs
    ]
    min_p = [math.log(config.min_p) if config.min_p > 0.0 else -math.inf for config in configs]
    return Limits(
        mx.array(top_k, mx.int32)[:, None],
        _column(top_p),
        _column(min_p),
        any(config.top_p < 1.0 for config in configs),
        any(config.min_p > 0.0 for config in configs),
    )
