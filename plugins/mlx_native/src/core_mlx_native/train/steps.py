"""The steps of a training on the owner thread: what one computes, and what it leaves."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mlx.core as mx

from core.training import TrainConfig
from core_mlx_native.adapters.apply import Adapter
from core_mlx_native.to_python import number
from core_mlx_native.train.batches import Batches, batch_of, in_order
from core_mlx_native.train.objective import Objective
from core_mlx_native.train.optimiser import Optimiser
from core_mlx_native.train.rows import TokenRow
from core_mlx_native.train.schedule import learning_rate


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a step came to: mean loss per learned token, and what ran."""

    loss: float
    norm: float
    rate: float
    tokens: int
    learned: int
    seconds: float

    @property
    def is_sound(self) -> bool:
        """False for a step whose numbers are none: it has changed nothing."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


class Steps:
    """Trains the adapter of a network of its own; on the owner thread alone.

    ``parameters`` are float32, in the adapter's order.
    """

    def __init__(
        self, objective: Objective, adapter: Adapter, rows: Sequence[TokenRow], config: TrainConfig
    ) -> None:
        self._objective, self._dropout = objective, adapter.dropout
        self._rows, self._config = rows, config
        self._batches = Batches(rows, config.batch_size, config.seed)
        values = adapter.parameters().items()
        self.parameters = {name: value.astype(mx.float32) for name, value in values}
        self.sound = self.parameters
        """The last parameters whose loss was seen to be a number: those before the last step."""
        self.optimiser = Optimiser(config, self.parameters)

    def run(self, step: int) -> Stepped:
        """Run a step, counted from 1: the mean over all that its batches learn."""
        begun = time.perf_counter()
        first = (step - 1) * self._config.accumulate
        batches = [
            batch_of(self._rows, self._batches[first + part])
            for part in range(self._config.accumulate)
        ]
        learned = sum(batch.learned for batch in batches)

        # Sums over batches, so that each learned token counts alike.
        total, gradient = 0.0, dict[str, mx.array]()
        for part, batch in enumerate(batches):
            self._drop(first + part)
            slope = self._objective.value_and_gradient(self.parameters, batch)
            mx.eval(slope.loss, slope.gradient)
            total += number(slope.loss)
            gradient = _sum(gradient, slope.gradient)
        self._drop(None)

        gradient = {name: value / learned for name, value in gradient.items()}
        moved, norm = self.optimiser.moved(self.parameters, gradient, step)
        mx.eval(moved, norm, self.optimiser.arrays())
        tokens = sum(batch.size for batch in batches)
        rate = learning_rate(self._config, step)
        seconds = time.perf_counter() - begun
        stepped = Stepped(total / learned, number(norm), rate, tokens, learned, seconds)
        if stepped.is_sound:
            self.sound, self.parameters = self.parameters, moved
        return stepped

    def measured(self, rows: Sequence[TokenRow]) -> float:
        """The mean loss per learned token of rows that are not learned."""
        total, learned = 0.0, 0
        for numbers in in_order(rows, self._config.batch_size):
            batch = batch_of(rows, numbers)
            total += number(self._objective.loss(self.parameters, batch))
            learned += batch.learned
        return total / learned

    def _drop(self, number: int | None) -> None:
        """Leave out the numbers that belong to a batch; none of them with None."""
        if self._dropout is not None:
            self._dropout.at(number)


def _sum(some: Mapping[str, mx.array], others: Mapping[str, mx.array]) -> dict[str, mx.array]:
    return {name: value + some[name] if name in some else value for name, value in others.items()}
