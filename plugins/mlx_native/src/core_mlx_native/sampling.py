"""From logits to a token, for many rows at once, each with its own options.

Order: repeat penalty, top_p, min_p, top_k, temperature, draw. The filters look at the
distribution at temperature 1, as mlx-lm's and the contract's do. Nothing here waits for a result,
so a step can be queued before the tokens of the one before are known.

Rows that need the same work are drawn together. Which work a row needs depends on its own options
alone, so its token does not depend on its neighbours.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from core.options import GenerateConfig
from core.serving.request import seeded
from core_mlx_native import host_math
from core_mlx_native.filters import in_blocks
from core_mlx_native.groups import Group, grouped, is_greedy
from core_mlx_native.host import on_cpu
from core_mlx_native.penalty import Repeats


@dataclass(frozen=True, slots=True)
class RowSampling:
    """How the B rows of a decode batch are sampled. Make a new one when rows come or go."""

    groups: tuple[Group, ...]
    order: mx.array | None  # from the groups' order to the batch's; None: they are the same

    @classmethod
    def of(cls, configs: Sequence[GenerateConfig]) -> RowSampling:
        """One row per config, each with a seed (`seeded`); ValueError without."""
        if any(config.seed is None for config in configs):
            raise ValueError("A row has no seed. Pass each request's config through seeded() once.")
        groups = grouped(configs)
        rows = [row for group in groups for row in group.rows]
        if len(groups) == 1:
            return cls(groups, None)
        return cls(groups, mx.array(sorted(range(len(rows)), key=rows.__getitem__)))


def draw(logits: mx.array, rows: RowSampling, steps: Sequence[int]) -> mx.array:
    """One token id per row, uint32 and not evaluated: [B], from penalised logits [B, V].

    ``steps[b]`` is how many tokens row b has drawn before; seed and step decide its noise.
    Temperature 0 takes the best token, and the lowest id among equals. A row whose logits are all
    -infinity, or hold a NaN, gets some id below V.
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
    """One token id per row: [B], from raw logits [B, V], all rows with the same options.

    With a seed, every row draws with the same noise, so that a row gets what it would get alone.
    """
    count, vocab_size = logits.shape
    repeats = Repeats.of(prompts, [config.repeat_penalty] * count, vocab_size)
    if is_greedy(config):  # no seed for each row, which takes longer than the rest
        return mx.argmax(repeats.penalise(logits).astype(mx.float32), axis=-1)
    rows = RowSampling.of([seeded(config) for _ in range(count)])
    return draw(repeats.penalise(logits), rows, [step] * count)


def logprobs(logits: mx.array, tokens: mx.array, total: mx.array | None = None) -> mx.array:
    """Log-probabilities of tokens [B] over the whole vocabulary: [B], from raw logits [B, V].

    The model's own: without penalty, filters and temperature. ``total``: their `log_total`, known.
    """
    chosen = mx.take_along_axis(logits, tokens[:, None], axis=-1)[:, 0]
    return chosen.astype(mx.float32) - (log_total(logits) if total is None else total)


def log_total(logits: mx.array) -> mx.array:
    """The logarithm of the sum of exponentials over the last axis: [...], from [..., V]."""
    parts = mx.logsumexp(in_blocks(logits.astype(mx.float32), -mx.inf), axis=-1)
    return mx.logsumexp(parts, axis=-1)


def quick_log_total(logits: mx.array) -> mx.array:
    """`log_total` of float32 logits; on a CPU through numpy, which waits for them."""
    return mx.array(host_math.log_total(logits)) if on_cpu() else log_total(logits)
