"""``inspect_attention``: the attention keys that one prefill of a prompt computes."""

from __future__ import annotations

from array import array

import mlx.core as mx

from core.types import AttentionSnapshot
from core_mlx_native.host import float_array
from core_mlx_native.loader import LoadedModel
from core_mlx_native.prefill import prefill


def inspect(model: LoadedModel, ids: list[int]) -> AttentionSnapshot:
    """Post-RoPE keys of all layers and KV heads. Run on the owner thread.

    In position order, and whole on sliding layers too: a window hides keys from later tokens, but
    every token has one.
    """
    config = model.config
    batch = prefill(model.decoder, [ids])
    return AttentionSnapshot(
        num_layers=config.num_layers,
        num_heads=config.num_kv_heads,
        seq_len=len(ids),
        head_dim=config.head_dim,
        architecture=config.model_type,
        keys=tuple(_heads(keys[0]) for keys, _ in batch.cache),
    )


def _heads(keys: mx.array) -> tuple[array[float], ...]:
    """One flat array per head, from [kv heads, T, D]."""
    heads = [mx.contiguous(head.astype(mx.float32)).reshape(-1) for head in keys]
    mx.eval(heads)
    return tuple(float_array(head) for head in heads)
