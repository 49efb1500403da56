"""The training steps, on the owner thread."""

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
from core_mlx_native.train.optimiser import Optimiser, learning_rate
from core_mlx_native.train.rows import TokenRow


@dataclass(frozen=True, slots=True)
class Stepped:
    """The result of a step: mean loss per learned token, and counts."""

    loss: float
    norm: float
    rate: float
    tokens: int
    learned: int
    seconds: float

    @property
    def is_sound(self) -> bool:
        """False if the step's numbers are not finite; it has then changed nothing."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


class Steps:
    """The steps of training the adapter of a separate network, on the owner thread only.

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
        """The last parameters with a finite loss: those before the last step."""
        self.optimiser = Optimiser(config, self.parameters)

    def run(self, step: int) -> Stepped:
        """Run a step, counted from 1, on the mean over all learned tokens of its batches."""
        begun = time.perf_counter()
        first = (step - 1) * self._config.accumulate
        batches = [
            batch_of(self._rows, self._batches[first + part])
            for part in range(self._config.accumulate)
        ]
        learned = sum(batch.learned for batch in batches)

        # Sums over batches, so that each learned token has the same weight.
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
        """Return the mean loss per learned token of validation rows."""
        total, learned = 0.0, 0
        for numbers in in_order(rows, self._config.batch_size):
            batch = batch_of(rows, numbers)
            total += number(self._objective.loss(self.parameters, batch))
            learned += batch.learned
        return total / learned

    def _drop(self, number: int | None) -> None:
        """Set the dropout masks of a batch; none with None."""
        if self._dropout is not None:
            self._dropout.at(number)


def _sum(some: Mapping[str, mx.array], others: Mapping[str, mx.array]) -> dict[str, mx.array]:
    return {name: value + some[name] if name in some else value for name, value in others.items()}
