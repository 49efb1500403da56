"""Linear maps with an adapter: what the base computes, and a product of low rank beside it.

LoRA (arXiv 2106.09685) adds ``scale * (x A^T) B^T`` to ``base(x)``. A and B are held transposed, as
mlx-lm names and stores them: ``lora_a`` = A^T [in, rank] and ``lora_b`` = B^T [rank, out]. DoRA
(arXiv 2402.09353) gives the sum the length ``m`` in each row of the weight:

    m / |W + scale B A| * (x W^T + scale (x A^T) B^T) + bias

where the length is a constant to the gradient. mlx-lm (tuner/dora.py) and PEFT
(tuners/lora/dora.py) agree on that; with dropout they do not, for PEFT then drops numbers in
``x W^T`` as well. This is mlx-lm's way.

Nothing here is held by a network without an adapter, which so costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

import mlx.core as mx
from mlx import nn

from core_mlx_native.network.layers import Dense, Linear, Linears
from core_mlx_native.network.ops import Ops

_STRIDE = 0x9E3779B97F4A7C15  # splitmix64's odd constant: steps of one seed lie far apart


@dataclass(frozen=True, slots=True)
class LowRank:
    """What an adapter adds to one linear map.

    ``a`` [in, rank], ``b`` [rank, out]; ``magnitude`` [out] for DoRA alone.
    """

    a: mx.array
    b: mx.array
    scale: float
    magnitude: mx.array | None = None


def summed(weight: mx.array, added: LowRank) -> mx.array:
    """``W + scale B A``, in float32: [out, in]."""
    delta = added.scale * (added.a.astype(mx.float32) @ added.b.astype(mx.float32))
    return weight.astype(mx.float32) + delta.T


def merged(weight: mx.array, added: LowRank) -> mx.array:
    """The weight that computes what ``weight`` [out, in] does with the adapter, in float32."""
    whole = summed(weight, added)
    if added.magnitude is None:
        return whole
    return (added.magnitude / mx.linalg.norm(whole, axis=1))[:, None] * whole


class Dropout:
    """Numbers of the input that are left out while an adapter is trained.

    Which ones is a function of the seed, the step, the layer and the shape, so that a step that is
    computed again, for a checkpointed block or in a run that goes on, leaves out the same.
    """

    def __init__(self, rate: float, seed: int, layers: int) -> None:
        self._kept, self._seed, self._layers = 1 - rate, seed, layers
        self._keys: mx.array | None = None  # [layers, 2]

    def at(self, step: int | None) -> None:
        """Leave out what belongs to this step from now on; nothing with None, or a rate of 0."""
        if step is None or self._kept == 1:
            self._keys = None
            return
        key = mx.random.key((self._seed + step * _STRIDE) % 2**64)
        self._keys = mx.random.split(key, self._layers)

    def __call__(self, x: mx.array, layer: int) -> mx.array:
        if self._keys is None:
            return x
        kept = mx.random.bernoulli(self._kept, x.shape, key=self._keys[layer])
        return x * (kept * (1 / self._kept)).astype(x.dtype)


class LoRALinear(nn.Module):
    """A linear map, dense or packed, with an adapter; it stands where the map stood.

    ``layer`` is its number among the adapter's layers, for ``dropout``.
    """

    def __init__(
        self,
        linear: Linear,
        added: LowRank,
        ops: Ops,
        dropout: Dropout | None = None,
        layer: int = 0,
    ) -> None:
        super().__init__()
        self.linear = linear
        self.linear.freeze()
        self.lora_a, self.lora_b, self.scale = added.a, added.b, added.scale
        if added.magnitude is not None:
            self.m = added.magnitude
        self._ops, self._dropout, self._layer = ops, dropout, layer
        self._settled_gain: mx.array | None = None

    def __call__(self, x: mx.array) -> mx.array:
        return self.added(self.linear(x), x)

    def added(self, y: mx.array, x: mx.array) -> mx.array:
        """Add the adapter's part to ``y`` [..., out], which the base makes of ``x`` [..., in]."""
        inputs = x if self._dropout is None else self._dropout(x, self._layer)
        delta = self.scale * ((inputs @ self.lora_a) @ self.lora_b)
        whole = y + delta.astype(y.dtype)
        if "m" not in self:
            return self._ops.settled(whole)

        # DoRA: the length of each row of the weight is learned; the bias stays as it is.
        gain = self.gain().astype(y.dtype)
        if "bias" not in self.linear:
            return self._ops.settled(gain * whole)
        bias = self.linear.bias
        return self._ops.settled(gain * (whole - bias) + bias)

    def gain(self) -> mx.array:
        """The factor of each output, ``m / |W + scale B A|``: [out]."""
        if self._settled_gain is not None:
            return self._settled_gain
        lengths = mx.linalg.norm(summed(self.linear.matrix.dense(), self.low_rank), axis=1)
        return self.m / mx.stop_gradient(lengths)

    @property
    def low_rank(self) -> LowRank:
        """The adapter's numbers as they are now."""
        return LowRank(self.lora_a, self.lora_b, self.scale, self.get("m"))

    def merged_weight(self) -> mx.array:
        """The weight that computes the same without an adapter, in float32: [out, in]."""
        return merged(self.linear.matrix.dense(), self.low_rank)

    def settle(self, *, settled: bool) -> None:
        """Compute once what stays the same while nothing is trained; or each time, without."""
        self._settled_gain = None
        if settled and "m" in self:
            gain = self.gain()
            mx.eval(gain)
            self._settled_gain = gain

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of what is trained, in order."""
        return ("lora_a", "lora_b", "m") if "m" in self else ("lora_a", "lora_b")


class LoRALinears(nn.Module):
    """Several linear maps as `Linears`, of which some have an adapter.

    The base computes all of them as it does without one, in one product where it can.
    """

    def __init__(self, linears: Linears, each: Sequence[Linear | LoRALinear]) -> None:
        super().__init__()
        self._linears = linears  # MLX leaves it out of the parameters by its name
        self.each = list(each)

    def __call__(self, x: mx.array, *others: mx.array) -> tuple[mx.array, ...]:
        inputs = (x, *others) if others else repeat(x)
        parts = self._linears(x, *others)
        return tuple(
            linear.added(part, its) if isinstance(linear, LoRALinear) else part
            for linear, part, its in zip(self.each, parts, inputs, strict=False)
        )

    @property
    def linears(self) -> Linears:
        """The maps without an adapter."""
        linears: Linears = self["_linears"]
        return linears


def initial(
    linear: Linear, rank: int, scale: float, dtype: mx.Dtype, key: mx.array, *, dora: bool = False
) -> LowRank:
    """What is trained from: A Kaiming-normal, B zero, so that the sum is the base's at first.

    A's standard deviation is ``1 / sqrt(3 in)``: Kaiming's for a slope of ``sqrt(5)``, the variance
    of the uniform draws from ``±1 / sqrt(in)`` that mlx-lm and PEFT begin with.
    """
    out, inner = linear.matrix.shape
    a = mx.random.normal((inner, rank), scale=(3 * inner) ** -0.5, key=key)
    length = mx.linalg.norm(linear.matrix.dense().astype(mx.float32), axis=1) if dora else None
    made = a.astype(dtype), mx.zeros((rank, out), dtype)
    mx.eval(made, *([] if length is None else [length]))
    return LowRank(*made, scale, length)


def is_packed(linear: Linear) -> bool:
    """True if the map's weight is quantised."""
    return not isinstance(linear.matrix, Dense)
