"""A network with a stored adapter, over the weights of a network without one."""

from __future__ import annotations

from collections.abc import Iterable

import mlx.core as mx

from core.errors import InvalidModelError
from core_mlx_native.adapters.apply import Adapter, attach, twin
from core_mlx_native.adapters.files import StoredAdapter
from core_mlx_native.adapters.layers import LowRank, summed
from core_mlx_native.network.decoder import Decoder

_SAME_LENGTH = 1e-3  # DoRA's lengths come from weights that may have had another dtype


def adapted(decoder: Decoder, stored: StoredAdapter) -> tuple[Decoder, Adapter]:
    """Return a `twin` of the network with the adapter, ready for use.

    The network itself is not changed.

    Raises `InvalidModelError` for an adapter that changes nothing: users would otherwise search for
    the cause elsewhere.
    """
    other = twin(decoder)
    adapter = attach(other, {name: _in(decoder.dtype, one) for name, one in stored.layers.items()})
    adapter.settle()
    refuse_unchanged(
        stored,
        (changes(layer.linear.matrix.dense(), layer.low_rank) for layer in adapter.layers.values()),
    )
    return other, adapter


def refuse_unchanged(stored: StoredAdapter, changed: Iterable[bool]) -> None:
    """Raise `InvalidModelError` if no layer is changed."""
    if not any(changed):
        raise InvalidModelError(
            f"The adapter {stored.directory} changes nothing: A or B is zero in all of its "
            f"{len(stored.layers)} layers, so it was saved before the first training step, or the "
            "file is damaged. To use the unchanged model, load it without the adapter."
        )


def changes(weight: mx.array, added: LowRank) -> bool:
    """Return True if the adapter changes the map."""
    if bool(added.a.any()) and bool(added.b.any()):
        return True
    if added.magnitude is None:
        return False
    gain = added.magnitude / mx.linalg.norm(summed(weight, added), axis=1)
    return float(mx.abs(gain - 1).max()) > _SAME_LENGTH


def _in(dtype: mx.Dtype, layer: LowRank) -> LowRank:
    """Return a layer in the network's dtype; DoRA's magnitudes keep theirs."""
    a, b = layer.a.astype(dtype), layer.b.astype(dtype)
    mx.eval(a, b)
    return LowRank(a, b, layer.scale, layer.magnitude)
