"""``score``: how likely given continuations are, from one pass over prompt and continuation.

Shapes: B rows, T tokens, C tokens of a continuation, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import mlx.core as mx

from core.errors import CoreError
from core.serving.batching import micro_batches
from core.serving.owner import OwnerThread
from core.serving.reading import Pair, pair
from core.types import Score
from core_mlx_native.failures import is_out_of_memory, not_a_number, too_large
from core_mlx_native.host import floats, ints
from core_mlx_native.loader import LoadedModel
from core_mlx_native.prefill import Prefill, prefill
from core_mlx_native.sampling import logprobs

_HEAD_FLOATS = 2**26  # logits held at once: 256 MiB


def score_all(
    model: LoadedModel, owner: OwnerThread, prompts: Sequence[str], continuations: Sequence[str]
) -> tuple[list[Score], int]:
    """One score per pair, in order, and how many tokens were run.

    What is wrong with one pair is its own ``error``.
    """
    rows = [pair(model, *both) for both in zip(prompts, continuations, strict=True)]
    scores = [Score(error=row) if isinstance(row, CoreError) else Score() for row in rows]
    sound = [(index, row) for index, row in enumerate(rows) if isinstance(row, Pair)]
    for batch in micro_batches([len(row.ids) for _, row in sound], model.token_budget):
        chosen = [sound[position] for position in batch]
        found = _try(model, owner, [row for _, row in chosen])
        for (index, _), score in zip(chosen, found, strict=True):
            scores[index] = score
    return scores, sum(len(row.ids) - 1 for index, row in sound if scores[index].error is None)


def _try(model: LoadedModel, owner: OwnerThread, rows: list[Pair]) -> list[Score]:
    """Run one micro-batch; out of memory, run its halves, down to the row that does not fit."""
    try:
        return owner.run(lambda: _run(model, rows))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        if len(rows) == 1:
            return [Score(error=too_large(len(rows[0].ids)))]
        half = len(rows) // 2
        return _try(model, owner, rows[:half]) + _try(model, owner, rows[half:])


def _run(model: LoadedModel, rows: list[Pair]) -> list[Score]:
    batch = prefill(model.decoder, [row.ids[:-1] for row in rows])
    return [_score(model, batch, index, row) for index, row in enumerate(rows)]


def _score(model: LoadedModel, batch: Prefill, index: int, row: Pair) -> Score:
    targets = list(row.ids[row.start :])  # C of them, each predicted one position before
    step = max(1, _HEAD_FLOATS // model.config.vocab_size)
    found: list[float] = []
    greedy = True
    for first in range(0, len(targets), step):
        some = mx.array(targets[first : first + step])
        begin = row.start - 1 + first
        logits = model.decoder.logits(batch.hidden[index, begin : begin + len(some)])  # [C, V]
        best = mx.argmax(logits, axis=-1)
        found += floats(logprobs(logits, some))
        greedy = greedy and all(ints(best == some))
    if any(map(math.isnan, found)):
        return Score(error=not_a_number())
    return Score(sum(found), tuple(found), greedy)
