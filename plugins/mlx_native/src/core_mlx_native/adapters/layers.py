"""Linear maps with an adapter: the base map plus a low-rank product.

LoRA (arXiv 2106.09685) adds ``scale * (x A^T) B^T`` to ``base(x)``. A and B are stored transposed,
named as in mlx-lm: ``lora_a`` = A^T [in, rank] and ``lora_b`` = B^T [rank, out]. DoRA (arXiv
2402.09353) scales each row of the summed weight to the length ``m``:

    m / |W + scale B A| * (x W^T + scale (x A^T) B^T) + bias

where the length is a constant for the gradient. mlx-lm (tuner/dora.py) and PEFT
(tuners/lora/dora.py) agree on that but not on dropout: PEFT also drops inputs of ``x W^T``. This
module follows mlx-lm.

A network without an adapter contains none of these layers, so it has no overhead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

import mlx.core as mx
from mlx import nn

from core_mlx_native.network.layers import Linear, Linears
from core_mlx_native.network.ops import Ops

_STRIDE = 0x9E3779B97F4A7C15  # splitmix64's odd constant: steps of one seed lie far apart


@dataclass(frozen=True, slots=True)
class LowRank:
    """The low-rank update of one linear map.

    ``a`` [in, rank], ``b`` [rank, out]; ``magnitude`` [out] only for DoRA.
    """

    a: mx.array
    b: mx.array
    scale: float
    magnitude: mx.array | None = None


def summed(weight: mx.array, added: LowRank) -> mx.array:
    """Return ``W + scale B A`` in float32: [out, in]."""
    delta = added.scale * (added.a.astype(mx.float32) @ added.b.astype(mx.float32))
    return weight.astype(mx.float32) + delta.T


def merged(weight: mx.array, added: LowRank) -> mx.array:
    """Return ``weight`` [out, in] with the adapter merged into it, in float32."""
    whole = summed(weight, added)
    if added.magnitude is None:
        return whole
    return (added.magnitude / mx.linalg.norm(whole, axis=1))[:, None] * whole


class Dropout:
    """Dropout of an adapter's inputs during training.

    The mask is a function of seed, step, layer and shape, so a step that is recomputed, for a
    checkpointed block or in a resumed run, has the same mask.
    """

    def __init__(self, rate: float, seed: int, layers: int) -> None:
        self._kept_share, self._seed, self._layers = 1 - rate, seed, layers
        self._keys: mx.array | None = None  # [layers, 2]

    def at(self, step: int | None) -> None:
        """Use the masks of this step from now on; none with None, or with a rate of 0."""
        if step is None or self._kept_share == 1:
            self._keys = None
            return
        key = mx.random.key((self._seed + step * _STRIDE) % 2**64)
        self._keys = mx.random.split(key, self._layers)

    def __call__(self, x: mx.array, layer: int) -> mx.array:
        if self._keys is None:
            return x
        mask = mx.random.bernoulli(self._kept_share, x.shape, key=self._keys[layer])
        return x * (mask * (1 / self._kept_share)).astype(x.dtype)


class LoRALinear(nn.Module):
    """A linear map, dense or quantised, with an adapter; it replaces the map in the network.

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
        """Add the adapter's part to ``y`` [..., out], the base's output for ``x`` [..., in]."""
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
        """Return the factor of each output, ``m / |W + scale B A|``: [out]."""
        if self._settled_gain is not None:
            return self._settled_gain
        lengths = mx.linalg.norm(summed(self.linear.matrix.dense(), self.low_rank), axis=1)
        return self.m / mx.stop_gradient(lengths)

    @property
    def low_rank(self) -> LowRank:
        """The adapter's current arrays."""
        return LowRank(self.lora_a, self.lora_b, self.scale, self.get("m"))

    def settle(self, *, settled: bool) -> None:
        """Precompute values that are constant outside training, or drop them."""
        self._settled_gain = None
        if settled and "m" in self:
            gain = self.gain()
            mx.eval(gain)
            self._settled_gain = gain

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the trained arrays, in order."""
        return ("lora_a", "lora_b", "m") if "m" in self else ("lora_a", "lora_b")


class LoRALinears(nn.Module):
    """Several linear maps as `Linears`, some of them with an adapter.

    The base maps are computed as without an adapter, in one product if possible.
    """

    def __init__(self, linears: Linears, maps: Sequence[Linear | LoRALinear]) -> None:
        super().__init__()
        self._linears = linears  # MLX excludes it from the parameters by its name
        self.maps = list(maps)

    def __call__(self, x: mx.array, *others: mx.array) -> tuple[mx.array, ...]:
        inputs = (x, *others) if others else repeat(x)
        parts = self._linears(x, *others)
        return tuple(
            linear.added(part, its) if isinstance(linear, LoRALinear) else part
            for linear, part, its in zip(self.maps, parts, inputs, strict=False)
        )

    @property
    def linears(self) -> Linears:
        """The maps without an adapter."""
        linears: Linears = self["_linears"]
        return linears


def initial(
    linear: Linear, rank: int, scale: float, dtype: mx.Dtype, key: mx.array, *, dora: bool = False
) -> LowRank:
    """Return an untrained adapter for a map.

    A is Kaiming-normal and B zero, so the sum equals the base at first.

    A's standard deviation is ``1 / sqrt(3 in)``: Kaiming's for a slope of ``sqrt(5)``, the variance
    of the uniform draws from ``±1 / sqrt(in)`` in mlx-lm and PEFT.
    """
    out, inner = linear.matrix.shape
    a = mx.random.normal((inner, rank), scale=(3 * inner) ** -0.5, key=key)
    length = mx.linalg.norm(linear.matrix.dense().astype(mx.float32), axis=1) if dora else None
    arrays = a.astype(dtype), mx.zeros((rank, out), dtype)
    mx.eval(arrays, *([] if length is None else [length]))
    return LowRank(*arrays, scale, length)
