"""A micro-batch that is read in lanes: on a CPU, each core runs some of its rows.

Rows behind a prefix share its keys and values, which nobody writes to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import mlx.core as mx

from core.serving.batching import even_parts, padded, rounded_up
from core_mlx_native import lanes
from core_mlx_native.decoder import Between
from core_mlx_native.loader import LoadedModel
from core_mlx_native.prefill import Prefill
from core_mlx_native.reading import Prefix, read

_WORTH = 96  # tokens of a lane: with fewer, to read the weights is the work, and each reads them
_COST = 0.8  # of a pass in lanes, where one pass on all cores takes 1


def read_in_lanes(
    model: LoadedModel,
    prompts: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
    prefix: Prefix,
    keep: bool,
    between: Between,
) -> list[Prefill]:
    """What `reading.read` finds, in parts that hold the rows in order; ``keep``: with the cache.

    Several parts are computed when this returns, one alone is only queued.
    """

    def job(rows: Sequence[int], check: Between) -> Prefill:
        some, places = [prompts[row] for row in rows], [positions[row] for row in rows]
        step, decoder = model.length_step, model.decoder
        found = read(decoder, some, places, prefix, model.fast, step, check)
        return found if keep else replace(found, cache=[])

    def computed(rows: Sequence[int], check: Between) -> Prefill:
        found = job(rows, check)
        mx.eval(found.hidden, found.cache)
        return found

    own = [rounded_up(len(prompt) - prefix.size, model.length_step) for prompt in prompts]
    parts = _parts(own, model.lanes)
    if len(parts) == 1:
        return [job(parts[0], between)]
    return lanes.run([partial(computed, part) for part in parts], between)


def _parts(own: Sequence[int], most: int) -> list[list[int]]:
    """The rows of each lane; all in one where lanes would wait too long for the longest."""
    if most > 1 and sum(own) >= most * _WORTH:
        parts = even_parts(own, most)
        longest = max(padded([own[row] for row in part]) for part in parts)
        if longest * most * _COST <= padded(own):
            return parts
    return [list(range(len(own)))]
