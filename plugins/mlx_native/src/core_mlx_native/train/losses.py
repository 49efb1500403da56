"""Losses as plain functions of MLX arrays, which `mx.grad`, `mx.vjp` and `mx.jvp` go through.

Shapes: N places, V vocabulary.
"""

from __future__ import annotations

import mlx.core as mx

from core_mlx_native.network.ops import widened
from core_mlx_native.train.batches import IGNORED


def cross_entropy(logits: mx.array, targets: mx.array) -> mx.array:
    """``-log softmax(logits)[target]`` in nats: [...], from logits [..., V] and targets [...].

    Computed in float32, and in float64 where the logits are.
    """
    wide = widened(logits)
    chosen = mx.take_along_axis(wide, targets[..., None], axis=-1)[..., 0]
    return mx.logsumexp(wide, axis=-1) - chosen


def masked_cross_entropy(logits: mx.array, targets: mx.array) -> mx.array:
    """The mean of `cross_entropy` over the places whose target is not -1: a number.

    NaN where no place has one: a mean of nothing.
    """
    counts = targets != IGNORED
    losses = cross_entropy(logits, mx.where(counts, targets, 0))
    return mx.where(counts, losses, 0).sum() / counts.sum()


def mean_squared_error(predictions: mx.array, targets: mx.array) -> mx.array:
    """The mean of ``(prediction - target)^2`` over all numbers of two arrays of one shape."""
    if predictions.shape != targets.shape:
        raise ValueError(
            f"The predictions have the shape {predictions.shape} and the targets {targets.shape}: "
            "give both one shape."
        )
    return (predictions - targets).square().mean()
