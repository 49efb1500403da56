"""The loss of a batch as a pure function of an adapter's parameters, and its gradient.

`Objective.loss` can be passed to MLX's transformations::

    objective = Objective(decoder, adapter)
    loss, slopes = mx.value_and_grad(objective.loss)(parameters, batch)

With the operations of `cpu.training_ops.DifferentiableOps`, and on a GPU, `mx.vjp` and `mx.jvp`
work as well.

Shapes: B rows, T tokens, N learned positions, H hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import mlx.core as mx

from core_mlx_native.adapters.apply import Adapter
from core_mlx_native.network.decoder import Decoder, Layer
from core_mlx_native.network.prefill import causal_masks
from core_mlx_native.network.rotary import View
from core_mlx_native.train.batches import TrainingBatch

Parameters = Mapping[str, mx.array]


@dataclass(frozen=True, slots=True)
class Slope:
    """The summed loss of a batch in nats, and its gradient by each parameter."""

    loss: mx.array
    gradient: dict[str, mx.array]


class Objective:
    """An exclusive network with one adapter, which contains the evaluated parameters.

    ``dtype``: that of A and B in computation, whatever the parameters' dtype. ``checkpointing``: a
    block's activations are recomputed for its gradient instead of kept.
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
        """The first layer with an adapter: layers below have no gradient."""

    def value_and_gradient(self, parameters: Parameters, batch: TrainingBatch) -> Slope:
        """Return the loss of a batch and its gradient.

        With checkpointing they are already computed.
        """
        below = mx.stop_gradient(self.below(batch))
        try:
            if self._checkpointing:
                return self._block_by_block(parameters, below, batch)
            loss, gradient = mx.value_and_grad(self._above)(dict(parameters), below, batch)
            return Slope(loss, gradient)
        finally:
            self._adapter.update(parameters)  # do not keep MLX's tracers

    def loss(self, parameters: Parameters, batch: TrainingBatch) -> mx.array:
        """Return the loss of a batch in nats, summed over learned tokens."""
        return self._above(parameters, self.below(batch), batch)

    def below(self, batch: TrainingBatch) -> mx.array:
        """Return the input of the first layer with an adapter: [B, T, H]."""
        x, view = self._decoder.embedded(batch.tokens), self._view(batch)
        for layer in self._decoder.layers[: self.first]:
            x, _ = layer(x, view, None)
        return x

    def _above(self, parameters: Parameters, x: mx.array, batch: TrainingBatch) -> mx.array:
        self._put(parameters)
        view = self._view(batch)
        for layer in self._decoder.layers[self.first :]:
            x, _ = layer(x, view, None)
        return self._summed(x, batch)

    def _block_by_block(self, parameters: Parameters, x: mx.array, batch: TrainingBatch) -> Slope:
        """Return loss and gradient, keeping only the blocks' inputs (arXiv 1604.06174).

        `mx.checkpoint` does not help: values computed while MLX traces a complete network, such as
        numpy's, stay until its end, inside blocks as well.
        """
        # Forwards, without a gradient.
        self._put(parameters)
        view, inputs = self._view(batch), [x]
        layers = self._decoder.layers[self.first :]
        for layer in layers:
            inputs.append(layer(inputs[-1], view, None)[0])
            mx.eval(inputs[-1])
        loss, slope = mx.value_and_grad(self._summed)(inputs.pop(), batch)
        mx.eval(loss, slope)

        # Backwards: run each block again, and free its inputs afterwards.
        gradient: dict[str, mx.array] = {}
        for index, layer in reversed([*enumerate(layers, self.first)]):
            own = self._of_layer(parameters, index)
            block = partial(self._block, layer, view, [*own])
            _, slopes = mx.vjp(block, [*own.values(), inputs.pop()], [slope])
            *slopes_of_layer, slope = slopes
            mx.eval(slopes)
            gradient |= zip(own, slopes_of_layer, strict=True)
        return Slope(loss, {name: gradient[name] for name in parameters})

    def _block(self, layer: Layer, view: View, names: Sequence[str], *values: mx.array) -> mx.array:
        """Return a block as a function of its parameters and, last, its input."""
        *own, x = values
        self._put(dict(zip(names, own, strict=True)))
        return layer(x, view, None)[0]

    def _of_layer(self, parameters: Parameters, index: int) -> dict[str, mx.array]:
        start = f"model.layers.{index}."
        return {name: value for name, value in parameters.items() if name.startswith(start)}

    def _summed(self, x: mx.array, batch: TrainingBatch) -> mx.array:
        """Return the loss over the learned positions; only these go through the LM head."""
        places = batch.places
        hidden = x.reshape(-1, x.shape[-1])[places]  # [N, H]
        wanted = batch.targets.reshape(-1)[places]
        return self._decoder.ops.token_losses(self._decoder, hidden, wanted).sum()

    def _view(self, batch: TrainingBatch) -> View:
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
