"""``hidden_states``: the output of layers at each prompt's last token.

The rows run through the same prefixes, micro-batches and lanes as those of `classify`, up to the
highest requested layer.

Shapes: B rows, L layers, H hidden size.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import mlx.core as mx

from core.errors import CoreError
from core.kit.base import Check
from core.types import HiddenResult
from core_mlx_native.classify.scheduler import OnDevice
from core_mlx_native.failures import not_finite
from core_mlx_native.loaded import LoadedModel
from core_mlx_native.network.prefill import Prefill
from core_mlx_native.to_python import bools, float_arrays
from core_runtime.rows import PromptRow


@dataclass(frozen=True, slots=True)
class HostStates:
    """The states of a micro-batch on the host, one array for each row."""

    broken: Sequence[bool]  # per row, whether it contains NaN or infinity
    states: Sequence[array[float]]


@dataclass(frozen=True, slots=True)
class DeviceStates(OnDevice[HostStates]):
    """The states of a micro-batch, queued on the device."""

    broken: mx.array  # [B]
    states: mx.array  # [B, L * H]

    def queue(self) -> DeviceStates:
        """Start the computation of every value on the device."""
        mx.async_eval(self.broken, self.states)
        return self

    def read(self) -> HostStates:
        """See `OnDevice`."""
        mx.eval(self.states)
        return HostStates(bools(self.broken), float_arrays(self.states))


@dataclass(frozen=True, slots=True)
class HiddenTask:
    """The `scheduler.ReadTask` of one call of ``hidden_states``; ``layers`` are counted from 0."""

    model: LoadedModel
    layers: tuple[int, ...]

    @property
    def inputs(self) -> Sequence[int]:
        """The layers below the highest one, whose outputs are the inputs of the next one."""
        return [layer for layer in self.layers if layer < self._top]

    @property
    def depth(self) -> int | None:
        """The number of layers up to the highest requested one; None for all of them."""
        return None if self._top == self.model.config.num_layers else self._top

    @property
    def row_tokens(self) -> int:
        """1: no logits are computed."""
        return 1

    def positions(self, rows: Sequence[PromptRow]) -> list[tuple[int]]:
        """Return the last token of each row."""
        return [(len(row.ids) - 1,) for row in rows]

    def keeps_cache(self, rows: Sequence[PromptRow]) -> bool:
        """Return False: nothing runs after a prompt."""
        return False

    def queue(self, rows: Sequence[PromptRow], parts: Sequence[Prefill], _: Check) -> DeviceStates:
        """Queue the states of all lanes, concatenated in layer order."""
        ends = iter([len(row.ids) - 1 for row in rows])
        parts_states = [self._states(part, list(islice(ends, len(part.hidden)))) for part in parts]
        states = mx.contiguous(mx.concatenate(parts_states))  # [B, L * H]
        return DeviceStates(~mx.isfinite(states).all(axis=-1), states).queue()

    def results(self, values: HostStates) -> list[HiddenResult]:
        """Return each row's result."""
        return [
            HiddenResult(self.layers, states)
            if not broken
            else HiddenResult(error=not_finite("hidden states"))
            for broken, states in zip(values.broken, values.states, strict=True)
        ]

    def failed(self, error: CoreError) -> HiddenResult:
        """See `scheduler.ReadTask`."""
        return HiddenResult(error=error)

    @property
    def _top(self) -> int:
        """The highest layer that runs; at least 1, so that another layer follows."""
        return max(1, *self.layers)

    def _states(self, part: Prefill, ends: Sequence[int]) -> mx.array:
        """Return the states of one lane's rows, float32: [rows, L * H]."""
        top = part.hidden_at(ends)  # [rows, H]
        if self.depth is None:  # as the LM head reads it
            top = self.model.decoder.norm(top)
        layers = [part.inputs[at][:, 0] if at in part.inputs else top for at in self.layers]
        return mx.concatenate([states.astype(mx.float32) for states in layers], axis=-1)
