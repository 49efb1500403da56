"""``score``: log-probabilities of continuations, from one pass over prompt and continuation.

The rows run through the same prefixes, micro-batches and lanes as those of `classify`.

Shapes: N scored tokens of all rows, H hidden size, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import mlx.core as mx

from core.errors import CoreError
from core.kit.base import Check
from core.types import Score
from core_mlx_native.classify.scheduler import OnDevice
from core_mlx_native.failures import not_finite
from core_mlx_native.loaded import LoadedModel
from core_mlx_native.network.prefill import Prefill
from core_mlx_native.sampling.sampling import logprobs
from core_mlx_native.to_python import bools, floats
from core_runtime.rows import ScoreRow


@dataclass(frozen=True, slots=True)
class HostScores:
    """The values of a micro-batch's targets on the host, row after row."""

    lengths: Sequence[int]  # number of targets per row
    logprobs: Sequence[float]
    best: Sequence[bool]  # whether the target is the likeliest token


@dataclass(frozen=True, slots=True)
class DeviceScores(OnDevice[HostScores]):
    """The values of a micro-batch, queued on the device."""

    lengths: Sequence[int]
    logprobs: mx.array  # [N]
    best: mx.array  # [N]

    def queue(self) -> DeviceScores:
        """Start the computation of every value on the device."""
        mx.async_eval(self.logprobs, self.best)
        return self

    def read(self) -> HostScores:
        """See `OnDevice`."""
        return HostScores(self.lengths, floats(self.logprobs), bools(self.best))


@dataclass(frozen=True, slots=True)
class ScoreTask:
    """The `scheduler.ReadTask` of one call of `score`."""

    model: LoadedModel

    @property
    def inputs(self) -> Sequence[int]:
        """No layer inputs."""
        return ()

    @property
    def depth(self) -> None:
        """None: all layers run."""
        return None

    @property
    def row_tokens(self) -> int:
        """1: logits do not count against the budget, as they are computed in parts."""
        return 1

    def positions(self, rows: Sequence[ScoreRow]) -> list[list[int]]:
        """Return the positions that predict the targets; short rows repeat their last one."""
        most = max(len(row.targets) for row in rows)
        return [places + places[-1:] * (most - len(places)) for places in map(_places, rows)]

    def keeps_cache(self, rows: Sequence[ScoreRow]) -> bool:
        """Return False: nothing runs after a continuation."""
        return False

    def queue(
        self, rows: Sequence[ScoreRow], parts: Sequence[Prefill], check: Check
    ) -> DeviceScores:
        """Queue the LM head for every target, over the full vocabulary, in parts that fit."""
        decoder, following = self.model.decoder, iter(rows)
        places = [list(map(_places, islice(following, len(part.hidden)))) for part in parts]
        hidden = mx.concatenate(
            [part.hidden_of(some) for part, some in zip(parts, places, strict=True)]
        )  # [N, H]
        targets = mx.array([token for row in rows for token in row.targets])  # [N]

        # The logits of some targets at a time.
        chances, best = [], []
        for start in range(0, len(targets), decoder.head_rows):
            check()
            some = targets[start : start + decoder.head_rows]
            logits = decoder.logits(hidden[start : start + decoder.head_rows])  # [some, V]
            chances.append(logprobs(logits, some, decoder.ops.log_total(logits)))
            best.append(mx.argmax(logits, axis=-1) == some)
            if decoder.head_rows < len(targets):
                decoder.ops.begin([chances[-1], best[-1]])  # or all logits would be held at once

        lengths = [len(row.targets) for row in rows]
        return DeviceScores(lengths, mx.concatenate(chances), mx.concatenate(best)).queue()

    def results(self, values: HostScores) -> list[Score]:
        """Return each row's score."""
        chances, best = iter(values.logprobs), iter(values.best)
        return [
            _score(tuple(islice(chances, length)), all(list(islice(best, length))))
            for length in values.lengths
        ]

    def failed(self, error: CoreError) -> Score:
        """See `scheduler.ReadTask`."""
        return Score(error=error)


def _places(row: ScoreRow) -> list[int]:
    """Return the positions that predict the row's targets, each one before its target."""
    return list(range(row.read_from, row.read_from + len(row.targets)))


def _score(logprobs: tuple[float, ...], greedy: bool) -> Score:
    if any(map(math.isnan, logprobs)):
        return Score(error=not_finite())
    return Score(sum(logprobs), logprobs, greedy)
