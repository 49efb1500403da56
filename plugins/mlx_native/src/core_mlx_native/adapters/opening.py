"""A network with a stored adapter, over the weights of a network without one."""

from __future__ import annotations

import mlx.core as mx

from core.errors import InvalidModelError
from core_mlx_native.adapters.apply import Adapter, attach, twin
from core_mlx_native.adapters.files import StoredAdapter
from core_mlx_native.adapters.layers import LoRALinear, LowRank
from core_mlx_native.network.decoder import Decoder

_SAME_LENGTH = 1e-3  # DoRA's lengths come from weights that may have had another dtype


def adapted(decoder: Decoder, stored: StoredAdapter) -> tuple[Decoder, Adapter]:
    """A `twin` of the network with the adapter, ready for use; the network itself stays as it is.

    Raises `InvalidModelError` for an adapter that changes nothing: whoever loads one that does not
    work looks for the reason elsewhere.
    """
    other = twin(decoder)
    adapter = attach(other, {name: _in(decoder.dtype, one) for name, one in stored.layers.items()})
    adapter.settle()
    if not any(changes(layer) for layer in adapter.layers.values()):
        raise InvalidModelError(
            f"The adapter {stored.directory} changes nothing: A or B is zero in all of its "
            f"{len(adapter.layers)} layers, so it was saved before its first step of training, or "
            "its file was written wrongly. Load the model without it if that is wanted."
        )
    return other, adapter


def changes(layer: LoRALinear) -> bool:
    """True if an adapted layer computes anything else than its base."""
    if bool(layer.lora_a.any()) and bool(layer.lora_b.any()):
        return True
    return "m" in layer and float(mx.abs(layer.gain() - 1).max()) > _SAME_LENGTH


def _in(dtype: mx.Dtype, layer: LowRank) -> LowRank:
    """A layer in the dtype that the network computes in; DoRA's lengths stay as they are."""
    a, b = layer.a.astype(dtype), layer.b.astype(dtype)
    mx.eval(a, b)
    return LowRank(a, b, layer.scale, layer.magnitude)
