"""The batches of each step, as a function of only the seed and the step.

In each epoch every row runs once. Rows of similar length run together, rows of equal length are
shuffled, and the order of the batches is random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from core_mlx_native.train.rows import TokenRow

IGNORED = -1
"""The target of a position that is not learned."""


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """Rows that run together, padded on the right.

    ``tokens`` [B, T] are the inputs, without each row's last token; ``targets`` [B, T] the next
    tokens, `IGNORED` where not learned; ``places`` [N] the learned positions, of all rows in order.
    ``rows`` are the rows' numbers, and ``size`` their number of tokens without padding.
    """

    tokens: mx.array
    targets: mx.array
    places: mx.array
    rows: tuple[int, ...]
    size: int

    @property
    def learned(self) -> int:
        """The number of learned targets."""
        return len(self.places)


def batch_of(rows: Sequence[TokenRow], numbers: Sequence[int]) -> TrainingBatch:
    """Return the batch of the rows with these numbers."""
    chosen = [rows[number] for number in numbers]
    length = max(len(row.ids) for row in chosen) - 1
    tokens = np.zeros((len(chosen), length), np.int32)
    targets = np.full((len(chosen), length), IGNORED, np.int32)
    for index, row in enumerate(chosen):
        tokens[index, : len(row.ids) - 1] = row.ids[:-1]
        places = np.array(row.learned)
        targets[index, places - 1] = np.array(row.ids)[places]
    size = sum(len(row.ids) - 1 for row in chosen)
    places = np.flatnonzero(targets != IGNORED)
    return TrainingBatch(
        mx.array(tokens), mx.array(targets), mx.array(places), tuple(numbers), size
    )


class Batches:
    """The endless batches of a training, by number from 0."""

    def __init__(self, rows: Sequence[TokenRow], batch_size: int, seed: int) -> None:
        self._lengths = np.array([len(row.ids) for row in rows])
        self._batch_size, self._seed = batch_size, seed
        self._epoch, self._order = -1, list[list[int]]()
        self.of_epoch = -(-len(rows) // batch_size)

    def __getitem__(self, number: int) -> list[int]:
        """Return the rows of a batch, by their numbers."""
        epoch, place = divmod(number, self.of_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._drawn(epoch)
        return self._order[place]

    def _drawn(self, epoch: int) -> list[list[int]]:
        draw = np.random.default_rng([self._seed, epoch])
        by_length = np.lexsort((draw.random(len(self._lengths)), self._lengths)).tolist()
        step = self._batch_size
        cut = [by_length[start : start + step] for start in range(0, len(by_length), step)]
        return [cut[place] for place in draw.permutation(len(cut)).tolist()]


def in_order(rows: Sequence[TokenRow], batch_size: int) -> list[list[int]]:
    """Return all rows once, by length, for evaluation."""
    by_length = sorted(range(len(rows)), key=lambda row: (len(rows[row].ids), row))
    step = batch_size
    return [by_length[start : start + step] for start in range(0, len(rows), step)]
