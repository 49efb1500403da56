"""The loss of a batch as a pure function of an adapter's parameters, and its gradient.

`Objective.loss` is what MLX's transformations take::

    objective = Objective(decoder, adapter)
    loss, slopes = mx.value_and_grad(objective.loss)(parameters, batch)

With the operations of `cpu.training_ops.DifferentiableOps`, and on a GPU, `mx.vjp` and `mx.jvp`
take it as well.

Shapes: B rows, T tokens, N places that are learned, H hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import mlx.core as mx

from core_mlx_native.adapters.apply import Adapter
from core_mlx_native.network.decoder import Decoder, Layer
from core_mlx_native.network.prefill import causal_masks
from core_mlx_native.network.rotation import View
from core_mlx_native.train.batches import Batch

Parameters = Mapping[str, mx.array]


@dataclass(frozen=True, slots=True)
class Slope:
    """The summed loss of a batch in nats, and its gradient by each parameter."""

    loss: mx.array
    gradient: dict[str, mx.array]


class Objective:
    """One network with one adapter, which nobody else uses: it holds what is tried out.

    ``dtype``: what A and B are computed in, whatever the parameters are. ``checkpointing``: what a
    block computes is computed again for its gradient, and not kept.
    """

    def __init__(
        self,
        decoder: Decoder,
        adapter: Adapter,
        dtype: mx.Dtype | None = None,
        *,
        checkpointing: bool = False,
    ) -> None:
        self._decoder, self._adapter, self._dtype = decoder, adapter, dtype
        self._checkpointing = checkpointing
        indices = [int(name.split(".")[2]) for name in adapter.layers]
        self.first = min(indices, default=0)
        """The first layer with an adapter: what stands below has no gradient."""

    def value_and_gradient(self, parameters: Parameters, batch: Batch) -> Slope:
        """The loss of a batch and its gradient, not computed yet."""
        below = mx.stop_gradient(self.below(batch))
        try:
            loss, gradient = mx.value_and_grad(self._above)(dict(parameters), below, batch)
        finally:
            self._adapter.update(parameters)  # what MLX traced by is not kept
        return Slope(loss, gradient)

    def loss(self, parameters: Parameters, batch: Batch) -> mx.array:
        """The loss of a batch, in nats, summed over what is learned."""
        return self._above(parameters, self.below(batch), batch)

    def below(self, batch: Batch) -> mx.array:
        """What goes into the first layer with an adapter: [B, T, H]."""
        x, view = self._decoder.embedded(batch.tokens), self._view(batch)
        for layer in self._decoder.layers[: self.first]:
            x, _ = layer(x, view, None)
        return x

    def _above(self, parameters: Parameters, x: mx.array, batch: Batch) -> mx.array:
        self._put(parameters)
        view = self._view(batch)
        for index, layer in enumerate(self._decoder.layers[self.first :], self.first):
            x = self._again(index, layer, parameters, x, view)
        return self._summed(x, batch)

    def _again(
        self, index: int, layer: Layer, parameters: Parameters, x: mx.array, view: View
    ) -> mx.array:
        """The output of a block; with checkpointing, of one that keeps nothing of its inside."""
        if not self._checkpointing:
            return layer(x, view, None)[0]

        # A function of all that has a gradient: MLX takes what else it sees for constants.
        start = f"model.layers.{index}."
        own = {name: value for name, value in parameters.items() if name.startswith(start)}

        def block(own: dict[str, mx.array], x: mx.array) -> mx.array:
            self._put(own)
            return layer(x, view, None)[0]

        return mx.checkpoint(block)(own, x)

    def _summed(self, x: mx.array, batch: Batch) -> mx.array:
        """The loss over the places that are learned, which alone go through the head."""
        places = batch.places
        hidden = x.reshape(-1, x.shape[-1])[places]  # [N, H]
        wanted = batch.targets.reshape(-1)[places]
        return self._decoder.ops.token_losses(self._decoder, hidden, wanted).sum()

    def _view(self, batch: Batch) -> View:
        size = batch.tokens.shape[1]
        positions = mx.arange(size)[None]
        return View(0, causal_masks(self._decoder, positions, size, whole=True))

    def _put(self, parameters: Parameters) -> None:
        cast_to = self._dtype
        self._adapter.update(
            {
                name: value if cast_to is None else value.astype(cast_to)
                for name, value in parameters.items()
            }
        )
