"""Losses as functions of MLX arrays, with support for `mx.grad`, `mx.vjp` and `mx.jvp`.

Shapes: N places, V vocabulary.
"""

from __future__ import annotations

import mlx.core as mx

from core_mlx_native.network.ops import widened
from core_mlx_native.train.batches import IGNORED


def cross_entropy(logits: mx.array, targets: mx.array) -> mx.array:
    """Return ``-log softmax(logits)[target]`` in nats: [...], from [..., V] and targets [...].

    Computed in float32, or in float64 for logits in float64.
    """
    wide = widened(logits)
    chosen = mx.take_along_axis(wide, targets[..., None], axis=-1)[..., 0]
    return mx.logsumexp(wide, axis=-1) - chosen


def masked_cross_entropy(logits: mx.array, targets: mx.array) -> mx.array:
    """Return the mean of `cross_entropy` over the positions whose target is not -1.

    NaN without such a position.
    """
    counts = targets != IGNORED
    losses = cross_entropy(logits, mx.where(counts, targets, 0))
    return mx.where(counts, losses, 0).sum() / counts.sum()


def mean_squared_error(predictions: mx.array, targets: mx.array) -> mx.array:
    """Return the mean of ``(prediction - target)^2`` over two arrays of equal shape."""
    if predictions.shape != targets.shape:
        raise ValueError(
            f"predictions have shape {predictions.shape} and targets {targets.shape}, but the "
            "shapes must be equal."
        )
    return (predictions - targets).square().mean()
