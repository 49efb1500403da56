"""``hidden_states``: what the layers make of each prompt at its last token.

The rows run through the same prefixes, micro-batches and lanes as those of `classify`, as far up as
the highest layer that is asked for.

Shapes: B rows, L layers, H hidden size.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import mlx.core as mx

from core.clock import Check
from core.errors import CoreError
from core.types import HiddenResult
from core_mlx_native.classify.scheduler import OnDevice
from core_mlx_native.failures import not_finite
from core_mlx_native.loader import LoadedModel
from core_mlx_native.network.prefill import Prefill
from core_mlx_native.to_python import bools, float_arrays
from core_runtime.rows import Row


@dataclass(frozen=True, slots=True)
class HostStates:
    """The states of a micro-batch on the host, one array for each row."""

    broken: Sequence[bool]  # of each row, whether a number in it is none
    states: Sequence[array[float]]


@dataclass(frozen=True, slots=True)
class DeviceStates(OnDevice[HostStates]):
    """The states of a micro-batch, queued on the device."""

    broken: mx.array  # [B]
    states: mx.array  # [B, L * H]

    def queue(self) -> DeviceStates:
        """Let the device begin to compute every value."""
        mx.async_eval(self.broken, self.states)
        return self

    def read(self) -> HostStates:
        """See `OnDevice`."""
        mx.eval(self.states)
        return HostStates(bools(self.broken), float_arrays(self.states))


@dataclass(frozen=True, slots=True)
class HiddenTask:
    """The `scheduler.Task` of one call of ``hidden_states``; ``layers`` are counted from 0."""

    model: LoadedModel
    layers: tuple[int, ...]

    @property
    def inputs(self) -> Sequence[int]:
        """The layers below the highest one: what they put out goes into the next one."""
        return [layer for layer in self.layers if layer < self._top]

    @property
    def depth(self) -> int | None:
        """As many layers as the highest one that is asked for; None for all of them."""
        return None if self._top == self.model.config.num_layers else self._top

    @property
    def row_tokens(self) -> int:
        """No logits are computed."""
        return 1

    def positions(self, rows: Sequence[Row]) -> list[tuple[int]]:
        """The last token of each row."""
        return [(len(row.ids) - 1,) for row in rows]

    def keeps_cache(self, rows: Sequence[Row]) -> bool:
        """False: nothing runs behind a prompt."""
        return False

    def queue(self, rows: Sequence[Row], parts: Sequence[Prefill], _: Check) -> DeviceStates:
        """Queue the states of all lanes, side by side in the order of the layers."""
        ends = iter([len(row.ids) - 1 for row in rows])
        found = [self._states(part, list(islice(ends, len(part.hidden)))) for part in parts]
        states = mx.contiguous(mx.concatenate(found))  # [B, L * H]
        return DeviceStates(~mx.isfinite(states).all(axis=-1), states).queue()

    def results(self, values: HostStates) -> list[HiddenResult]:
        """Make each row's result."""
        return [
            HiddenResult(self.layers, states)
            if not broken
            else HiddenResult(error=not_finite("hidden states"))
            for broken, states in zip(values.broken, values.states, strict=True)
        ]

    def failed(self, error: CoreError) -> HiddenResult:
        """See `scheduler.Task`."""
        return HiddenResult(error=error)

    @property
    def _top(self) -> int:
        """The highest layer that runs: one at least, so that there is something behind it."""
        return max(1, *self.layers)

    def _states(self, part: Prefill, ends: Sequence[int]) -> mx.array:
        """The states of one lane's rows, float32: [rows, L * H]."""
        top = part.hidden_at(ends)  # [rows, H]
        if self.depth is None:  # as the head reads it
            top = self.model.decoder.norm(top)
        found = [part.inputs[at][:, 0] if at in part.inputs else top for at in self.layers]
        return mx.concatenate([each.astype(mx.float32) for each in found], axis=-1)
