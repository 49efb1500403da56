"""Adapters attached to a network and removed again, and twins of a network with shared weights.

Layers have the names of transformers' modules, ``model.layers.0.self_attn.q_proj``. `Adapter` is in
one of two states: during training every pass reads A and B directly; once `settled`, precomputed
values are used until `update` changes A and B.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx import nn

from core import validate
from core.errors import InvalidOptionError
from core_mlx_native.adapters.layers import Dropout, LoRALinear, LoRALinears, LowRank, initial
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.layers import Linear
from core_mlx_native.network.ops import Ops

ALL_LINEAR = "all-linear"
MODULES = {
    "q_proj": "self_attn",
    "k_proj": "self_attn",
    "v_proj": "self_attn",
    "o_proj": "self_attn",
    "gate_proj": "mlp",
    "up_proj": "mlp",
    "down_proj": "mlp",
}
"""The linear maps of a layer, in order, with the part that each belongs to."""

_TOGETHER = {
    **{f"{part}_proj": ("qkv_proj", index) for index, part in enumerate("qkv")},
    "gate_proj": ("gate_up_proj", 0),
    "up_proj": ("gate_up_proj", 1),
}
EVERY_LAYER = -1


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """Settings of a new adapter. A wrong value raises `InvalidOptionError` with the allowed ones.

    ``targets``: names of linear maps, ``q_proj`` or ``self_attn.q_proj``, or ``all-linear``.
    ``num_layers`` counts from the last layer, as mlx-lm does; -1, or more than the model has, means
    all layers. ``dtype`` is that of A and B; ``seed`` determines the initial A and the dropout
    masks.
    """

    rank: int = 8
    scale: float = 20.0
    dropout: float = 0.0
    targets: Sequence[str] = (ALL_LINEAR,)
    num_layers: int = 16
    dora: bool = False
    dtype: mx.Dtype = mx.float32
    seed: int = 0

    def __post_init__(self) -> None:
        validate.integer("rank", self.rank, 1)
        validate.real("scale", self.scale, 0.0, above=True)
        validate.real("dropout", self.dropout, 0.0)
        if self.dropout >= 1:
            raise InvalidOptionError("dropout", self.dropout, "a finite number >= 0 and < 1")
        modules_of(self.targets)
        if self.num_layers != EVERY_LAYER:
            validate.integer("num_layers", self.num_layers, 1)
        validate.flag("dora", self.dora)
        validate.integer("seed", self.seed, 0)


def scale_of(alpha: float, rank: int, *, rslora: bool = False) -> float:
    """Return PEFT's scale for ``lora_alpha``: divided by the rank, or by its root with rsLoRA.

    rsLoRA: arXiv 2312.03732.
    """
    return float(alpha / (rank**0.5 if rslora else rank))


def modules_of(targets: Sequence[str]) -> tuple[str, ...]:
    """Return the names in `MODULES` that the targets select, in order.

    Raises `InvalidOptionError`.
    """
    wanted = set(validate.texts("targets", [targets] if isinstance(targets, str) else targets))
    known = {ALL_LINEAR: tuple(MODULES)}
    for name, part in MODULES.items():
        known[name] = known[f"{part}.{name}"] = (name,)
    for target in wanted:
        if target not in known:
            names = ", ".join((*MODULES, ALL_LINEAR))
            raise InvalidOptionError("targets", target, f"one of {names}")
    if not wanted:
        raise InvalidOptionError("targets", targets, f"at least one of {', '.join(MODULES)}")
    return tuple(name for name in MODULES if any(name in known[target] for target in wanted))


def layer_names(num_layers: int, targets: Sequence[str], last: int = EVERY_LAYER) -> list[str]:
    """Return the full names of the targets in the last ``last`` layers, in layer order."""
    first = 0 if last == EVERY_LAYER else max(0, num_layers - last)
    return [
        f"model.layers.{index}.{MODULES[name]}.{name}"
        for index in range(first, num_layers)
        for name in modules_of(targets)
    ]


class Adapter:
    """The layers of one adapter in one network; see the module. `remove` detaches it."""

    def __init__(
        self, decoder: Decoder, layers: Mapping[str, LoRALinear], dropout: Dropout | None
    ) -> None:
        self._decoder, self._settled = decoder, False
        self.layers, self.dropout = layers, dropout

    def parameters(self) -> dict[str, mx.array]:
        """Return the trained arrays by mlx-lm's names, always in the same order."""
        return {
            f"{name}.{part}": layer[part]
            for name, layer in self.layers.items()
            for part in layer.parts
        }

    def update(self, parameters: Mapping[str, mx.array]) -> None:
        """Set new values, by the names of `parameters`; the adapter is unsettled afterwards."""
        self.unsettle()
        for name, value in parameters.items():
            layer, _, part = name.rpartition(".")
            self.layers[layer][part] = value

    def settle(self) -> None:
        """Precompute everything that passes would repeat; call this before using the network."""
        for layer in self.layers.values():
            layer.settle(settled=True)
        for block in self._decoder.layers:
            block.shorten()
        self._settled = True

    def unsettle(self) -> None:
        """Make every pass read A and B directly, through differentiable operations."""
        if not self._settled:
            return
        for layer in self.layers.values():
            layer.settle(settled=False)
        for block in self._decoder.layers:
            block.shorten(short=False)
        self._settled = False

    def remove(self) -> None:
        """Restore the network without the adapter."""
        for name in self.layers:
            _put(self._decoder, name, None)
        for block in self._decoder.layers:
            block.shorten()
        self.layers = {}


def attach(
    decoder: Decoder, added: Mapping[str, LowRank], dropout: Dropout | None = None
) -> Adapter:
    """Attach an adapter to the linear maps that ``added`` names, in the network itself.

    The adapter is not settled. To keep the network without it too, attach to its `twin`.
    """
    for block in decoder.layers:
        block.shorten(short=False)
    layers: dict[str, LoRALinear] = {}
    for name in _in_order(decoder, added):
        layer = LoRALinear(linear_at(decoder, name), added[name], decoder.ops, dropout, len(layers))
        layers[name] = layer
        _put(decoder, name, layer)
    decoder.freeze()
    for layer in layers.values():
        layer.unfreeze(keys=list(layer.parts), recurse=False)
    return Adapter(decoder, layers, dropout)


def new_adapter(decoder: Decoder, settings: LoraSettings) -> Adapter:
    """Attach an untrained adapter, which does not change the outputs yet."""
    names = layer_names(len(decoder.layers), settings.targets, settings.num_layers)
    keys = mx.random.split(mx.random.key(settings.seed), len(names))
    added = {
        name: initial(
            linear_at(decoder, name),
            settings.rank,
            settings.scale,
            settings.dtype,
            key,
            dora=settings.dora,
        )
        for name, key in zip(names, keys, strict=True)
    }
    return attach(decoder, added, Dropout(settings.dropout, settings.seed, len(names)))


def twin(decoder: Decoder, ops: Ops | None = None) -> Decoder:
    """Return another network over the same arrays; adapters are attached to only one of them.

    With ``ops`` it uses those operations, without short passes until `Adapter.settle`.
    """
    other: Decoder = _twin(decoder, ops)
    if ops is not None:
        other.ops = ops
        for block in other.layers:
            block.shorten(short=False)
    return other


def _twin(value: Any, ops: Ops | None) -> Any:
    if isinstance(value, nn.Module):
        other = copy.copy(value)
        other._no_grad = set(value._no_grad)  # freezing one does not freeze the other
        if ops is not None and "_ops" in vars(other):
            other._ops = ops
        for key, part in value.items():
            dict.__setitem__(other, key, _twin(part, ops))
        return other
    return [_twin(part, ops) for part in value] if isinstance(value, list) else value


def linear_at(decoder: Decoder, name: str) -> Linear:
    """Return the linear map of this name, without its adapter if it has one."""
    part, where = _place(decoder, name)
    linear = part[where[0]] if len(where) == 1 else part[where[0]].maps[where[1]]
    return linear.linear if isinstance(linear, LoRALinear) else linear


def _put(decoder: Decoder, name: str, layer: LoRALinear | None) -> None:
    """Replace a map by an adapted layer, or restore the map with None."""
    linear = linear_at(decoder, name)
    part, where = _place(decoder, name)
    if len(where) == 1:
        part[where[0]] = layer or linear
        return

    # Maps that are computed together stay together.
    own, index = where
    group = part[own]
    plain = group.linears if isinstance(group, LoRALinears) else group
    linears = list(group.maps)
    linears[index] = linear if layer is None else layer
    adapted = any(isinstance(one, LoRALinear) for one in linears)
    part[own] = LoRALinears(plain, linears) if adapted else plain


def _place(decoder: Decoder, name: str) -> tuple[nn.Module, tuple[str] | tuple[str, int]]:
    _, _, index, part, module = name.split(".")
    owner = decoder.layers[int(index)][part]
    return owner, _TOGETHER.get(module, (module,))


def _in_order(decoder: Decoder, added: Mapping[str, LowRank]) -> Iterator[str]:
    for name in layer_names(len(decoder.layers), [ALL_LINEAR]):
        if name in added:
            yield name


def adapter_in(decoder: Decoder) -> Adapter | None:
    """Return the adapter that a network has; None for one without."""
    layers = {}
    for name in layer_names(len(decoder.layers), [ALL_LINEAR]):
        part, where = _place(decoder, name)
        layer = part[where[0]] if len(where) == 1 else part[where[0]].maps[where[1]]
        if isinstance(layer, LoRALinear):
            layers[name] = layer
    return Adapter(decoder, layers, None) if layers else None
